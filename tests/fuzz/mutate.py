"""Inputs that are almost right: a sample with a few random changes, the same for the same seed.

Most changes are small, so that a reader gets far before it notices. Some put in what has broken
readers before: numbers without end, half a character, names of a hundred thousand parts.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random

NUMBERS = ("-1", "0", "0.5", "1e6", "1000000", "999999999", "1" + "0" * 18, "9" * 5000)
NASTY = (
    *NUMBERS,
    *("", "1e999", "1e-999", "nan", "inf", "NaN", "Infinity", "null", "true", "0x10", "1/0"),
    *("[]", "{}", '""', "''", '"\\ud800"', "\\ud800", '"\\u0000"', "\x00", "\x1b[31m", "\u2028"),
    *("\ufeff", "\u0663", "\U0001f600", ",", ":", "=", ".", "/", "#", "\n", "\r\n", "[[", "]]"),
    *("1/" + "9" * 5000, "[" * 3000, '{"a":' * 3000, "a." * 50_000, "x" * 300),
    *("\\u0000", "\\u001b[2J", "\u202e", "../", "~", "-", "--force", "%s", "{0}", "$HOME", "*"),
)
"""What readers have stumbled over, or might."""
LARGE = 700_000
"""Letters of a text that was made large: what takes quadratic time with it takes seconds."""
EVERY = 300
"""One of so many inputs is made large, for they take long."""
FEW = 2
"""Lines up to which a text is taken as a list with commas."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z_]{2,}")
_ITEM = re.compile(r"[^,\n]*[,\n]|[^,\n]+")
Change = Callable[[Random, str], str]


def _piece(random: Random, text: str, longest: int = 40) -> tuple[int, int]:
    start = random.randint(0, len(text))
    return start, min(len(text), start + random.randint(0, longest))


def _delete(random: Random, text: str) -> str:
    start, end = _piece(random, text)
    return text[:start] + text[end:]


def _insert(random: Random, text: str) -> str:
    start, _ = _piece(random, text)
    return text[:start] + random.choice(NASTY) + text[start:]


def _repeat(random: Random, text: str) -> str:
    start, end = _piece(random, text, 12)
    return text[:start] + text[start:end] * random.choice((2, 3, 50, 2000)) + text[end:]


def _move(random: Random, text: str) -> str:
    start, end = _piece(random, text)
    rest = text[:start] + text[end:]
    place, _ = _piece(random, rest)
    return rest[:place] + text[start:end] + rest[place:]


def _letter(random: Random, text: str) -> str:
    start, _ = _piece(random, text)
    return (
        text[:start]
        + chr(random.choice((random.randrange(128), random.randrange(0xD800))))
        + (text[start + 1 :])
    )


def _enlarge(random: Random, text: str) -> str:
    """A line or an item so often that a reader which takes quadratic time is noticed.

    Many formats refuse a key that is given twice before they do anything slow, so that copies may
    be numbered.
    """
    lines = text.splitlines(keepends=True)
    pieces = lines if len(lines) > FEW else _ITEM.findall(text) or [text]
    place = random.randrange(len(pieces))
    copy = random.choice((_same, _numbered, _numbered, _numbered))
    count = LARGE // max(1, len(copy(pieces[place], 99_999)))
    pieces[place] = "".join(copy(pieces[place], number) for number in range(count))
    return "".join(pieces)


def _same(piece: str, _: int) -> str:
    return piece


def _numbered(piece: str, number: int) -> str:
    """A piece whose name, or whose last number where it has none, is another one each time."""
    if named := _WORD.search(piece):
        return f"{piece[: named.end()]}{number:05}{piece[named.end() :]}"
    *_, last = [None, *_NUMBER.finditer(piece)]
    return f"{piece[: last.start()]}{number}{piece[last.end() :]}" if last else piece


def _cut(random: Random, text: str) -> str:
    return text[: random.randint(0, len(text))]


def _replace(pattern: "re.Pattern[str]", by: Callable[[Random, str], str]) -> Change:
    """One of the places that a pattern finds, with something else in it."""

    def change(random: Random, text: str) -> str:
        places = list(pattern.finditer(text))
        if not places:
            return text
        found = random.choice(places)
        return text[: found.start()] + by(random, text) + text[found.end() :]

    return change


def _any_number(random: Random, _: str) -> str:
    power = str(10 ** random.randrange(20))
    return random.choice((random.choice(NUMBERS), str(random.randrange(12)), power))


def _nasty(random: Random, _: str) -> str:
    return random.choice(NASTY)


def _other_word(random: Random, text: str) -> str:
    return random.choice(_WORD.findall(text))


CHANGES: tuple[Change, ...] = (
    *(_delete, _insert, _repeat, _move, _letter, _cut),
    *(_replace(_NUMBER, _any_number),) * 4,
    _replace(_NUMBER, _nasty),
    _replace(_WORD, _nasty),
    _replace(_WORD, _other_word),
)


def mutants(samples: Sequence[str], count: int, seed: str) -> Iterator[str]:
    """So many changed samples; each has one change to three, or is made large."""
    for number in range(count):
        random = Random(f"{seed} {number}")
        text = random.choice(samples)
        large = number % EVERY == EVERY - 1
        for _ in range(random.choice((0, 0, 1) if large else (1, 1, 1, 2, 3))):
            text = random.choice(CHANGES)(random, text)
        yield _enlarge(random, text) if large else text
