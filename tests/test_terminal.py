"""What untrusted files say reaches a terminal as text, and never as a command to it."""

import sys
import unicodedata

from penstock.terminal import printable, printable_colours

CLEAR = "\x1b[2J\x1b]0;title\x07"
"""Clears the screen and sets the title of the window."""


def test_no_control_character_is_left_but_ends_of_lines_and_tabs() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    left = {char for char in printable(every) if unicodedata.category(char) in ("Cc", "Cs")}
    assert left == {"\n", "\t"}
    assert printable("a\rb\r\n") == "a\\x0db\r\n"
    assert printable("\u202eright to left\ud800") == "\\u202eright to left\\ud800"


def test_text_stays_as_it_is() -> None:
    text = "na\u00efve \u4f60\u597d \U0001f600 caf\u00e9\n\ta line\n"
    assert printable(text) == text


def test_colours_are_kept_and_nothing_else_with_them() -> None:
    assert printable_colours(f"\x1b[1mbold\x1b[0m {CLEAR}") == (
        "\x1b[1mbold\x1b[0m \\x1b[2J\\x1b]0;title\\x07"
    )
