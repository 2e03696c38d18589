"""A bar on a terminal, lines elsewhere, and always the loss."""

from io import StringIO

import pytest

from penstock.train.records import console
from penstock.train.records.console import BarDisplay, LineDisplay, duration, open_display


class Terminal(StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which two seconds pass whenever it is read."""
    times = iter(range(0, 1000, 2))
    monkeypatch.setattr(console, "monotonic", lambda: next(times))


@pytest.mark.usefixtures("slow_clock")
def test_without_a_terminal_a_line_comes_every_few_steps_and_at_the_end() -> None:
    stream = StringIO()
    display = open_display(5, 0, stream, every=2)
    assert isinstance(display, LineDisplay)
    for step in range(1, 6):
        display.step(step, loss=float(step), tokens_per_second=1000.0 * step)
    display.close()
    assert stream.getvalue().splitlines() == [
        "step 2/5  loss 1.5000  2,000 tokens/s  0:03 left",
        "step 4/5  loss 2.5000  4,000 tokens/s  0:01 left",
        "step 5/5  loss 3.0000  5,000 tokens/s  0:00 left",
    ]


def test_the_loss_shown_is_the_mean_of_ten_steps() -> None:
    stream = StringIO()
    display = LineDisplay(12, 0, stream, every=12)
    for step in range(1, 13):
        display.step(step, loss=float(step), tokens_per_second=1.0)
    assert "loss 7.5000" in stream.getvalue()


@pytest.mark.usefixtures("slow_clock")
def test_the_time_left_is_paced_by_the_steps_since_the_run_went_on() -> None:
    stream = StringIO()
    LineDisplay(100, 90, stream, every=1).step(91, loss=1.0, tokens_per_second=1.0)
    assert stream.getvalue().endswith("0:18 left\n")


def test_a_terminal_gets_a_bar_with_step_loss_speed_and_time() -> None:
    stream = Terminal()
    display = open_display(4, 1, stream, every=1)
    assert isinstance(display, BarDisplay)
    display.step(2, loss=2.5, tokens_per_second=54321.0)
    display.say("saved [step 2]")
    display.close()
    shown = stream.getvalue()
    for words in ("2/4", "loss 2.5000", "54,321 tokens/s", "left", "saved [step 2]"):
        assert words in shown


def test_words_of_their_own_are_lines() -> None:
    stream = StringIO()
    display = open_display(4, 0, stream, every=100)
    display.say("evaluation loss 2.5")
    assert stream.getvalue() == "evaluation loss 2.5\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0:00"), (59.6, "1:00"), (3599.9, "1:00:00"), (86400.0, "1d 0:00:00")],
)
def test_time_is_rounded_before_it_is_split(seconds: float, words: str) -> None:
    assert duration(seconds) == words
