"""What ranks print comes to the console line by line, and cannot steer the terminal there."""

import io
import os

from penstock.run.launch.output import Console


class Screen:
    """A stream with the buffer that a console writes to."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()


def shown(text: bytes, prefix: str) -> bytes:
    """What of a rank's output reaches the screen."""
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    screen = Screen()
    with Console() as console:
        console._pump(os.fdopen(reading, "rb"), None, screen, prefix)
    return screen.buffer.getvalue()


def test_lines_of_other_ranks_have_no_control_characters() -> None:
    assert shown(b"a\x1b[2Jb\xff\nc", "[rank 1] ") == (b"[rank 1] a\\x1b[2Jb\\xff\n[rank 1] c")


def test_the_first_rank_has_its_progress_bar() -> None:
    assert shown(b"\x1b[1A 10%\r", "") == b"\x1b[1A 10%\r"
