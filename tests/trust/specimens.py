"""Small plays by hand, for work and notes that few registered schedules use.

Lanes are typed as text, one line each: device, stream, then work such as `2F0.1`.
"""

import re

from .board import Play
from .world import Place, Work, World

_WORK = re.compile(r"(\d+)([A-Z])(\d+)(?:\.(\d+))?")


def work(text: str) -> Work:
    """The work that a word spells.

    >>> work("2F0.1")
    ('F', 2, 0, 1)
    """
    match = _WORK.fullmatch(text)
    assert match is not None, text
    return match[2], int(match[1]), int(match[3]), int(match[4] or 0)


def lanes(text: str) -> dict[Place, list[Work]]:
    """The lanes that lines of text spell."""
    found: dict[Place, list[Work]] = {}
    for line in text.strip().splitlines():
        place, words = line.split(":")
        device, stream = place.split()
        found[int(device), stream] = [work(word) for word in words.split()]
    return found


def one_stage_each(text: str) -> str:
    """Lanes of a paper's table (`d2 F0 S0 T0`), where device, stage and shard are one number."""
    rows = (line.split() for line in text.strip().splitlines())
    return "\n".join(
        f"{d[1:]} compute: " + " ".join(d[1:] + word for word in words) for d, *words in rows
    )


VOCAB_1 = one_stage_each("""
d0 F0 F1 F2 F3 S0 F4 T0 S1 F5 T1 S2 T2 S3 T3 S4 B0 F6 T4 S5 B1 F7 T5 S6 B2 T6 S7 B3 T7 B4 B5 B6 B7
d1 F0 F1 F2 S0 F3 T0 S1 F4 T1 S2 T2 S3 B0 T3 S4 F5 B1 T4 S5 F6 B2 T5 S6 F7 B3 T6 S7 B4 T7 B5 B6 B7
d2 F0 F1 S0 F2 T0 S1 F3 T1 S2 B0 T2 S3 F4 B1 T3 S4 F5 B2 T4 S5 F6 B3 T5 S6 F7 B4 T6 S7 B5 T7 B6 B7
d3 F0 S0 F1 T0 S1 F2 B0 T1 S2 F3 B1 T2 S3 F4 B2 T3 S4 F5 B3 T4 S5 F6 B4 T5 S6 F7 B5 T6 S7 B6 T7 B7
""")
VOCAB_2 = one_stage_each("""
d0 F0 F1 F2 F3 S0 F4 T0 S1 T1 S2 T2 S3 B0 F5 T3 S4 B1 F6 T4 S5 B2 F7 T5 S6 B3 T6 S7 B4 B5 B6 B7 T7
d1 F0 F1 F2 S0 F3 T0 S1 T1 S2 B0 T2 S3 F4 B1 T3 S4 F5 B2 T4 S5 F6 B3 T5 S6 F7 B4 T6 S7 B5 B6 B7 T7
d2 F0 F1 S0 F2 T0 S1 B0 T1 S2 F3 B1 T2 S3 F4 B2 T3 S4 F5 B3 T4 S5 F6 B4 T5 S6 F7 B5 T6 S7 B6 B7 T7
d3 F0 S0 F1 B0 T0 S1 F2 B1 T1 S2 F3 B2 T2 S3 F4 B3 T3 S4 F5 B4 T4 S5 F6 B5 T5 S6 F7 B6 T6 S7 B7 T7
""")
"""The two vocabulary algorithms inserted into 1F1B (arXiv:2411.05288, p=4, m=8)."""

INPUT_LAYER = """
0 compute: 0E0 0E1 0F0 0F1 0B0 0D0 0B1 0D1
1 compute: 1E0 1E1 1F0 1B0 1F1 1D0 1B1 1D1
"""

RECOMPUTE = """
0 compute: 0N0 0N0.1 0F1 0F1.1 0R0.1 0B0.1 0R0 0B0 0B1.1 0B1
1 compute: 1N0 1F0.1 1B0.1 1R0 1B0 1F1 1F1.1 1B1.1 1B1
"""

OFFLOAD = """
0 compute: 0F0 0F0.1 0F0.2 0I0.2 0I0.1 0W0.2 0I0 0W0.1 0W0
0 copy:    0O0 0O0.1 0L0.1 0L0
1 compute: 1F0 1F0.1 1F0.2 1B0.2 1B0.1 1B0
1 copy:    1O0 1L0
"""
"""All forwards, all backwards over slices, early slices on the host (arXiv:2503.10377)."""

SKIP = """
0 compute: 0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1
1 compute: 1F0 1F1 2F0 2F1 2B0 1B0 2B1 1B1
"""

ATTENTION = """
0 compute: 0F0 0F1 1F1 3F0 4F0 4F1 4B1 4B0 3B0 1B1 0B1 0B0
1 compute: 1F0 2F0 2F1 3F1 3B1 2B1 2B0 1B0
"""
"""Attention without weights, on a device that depends on the microbatch (arXiv:2507.00394)."""

BRAIDED = """
0 compute: 0F0 3F0 0F1 3B0 3F1 0B0 3B1 0B1
1 compute: 1F0 2F0 1F1 2B0 2F1 1B0 2B1 1B1
"""

BOTH_WAYS = """
0 compute: 0F0 1F1 1B1 0B0
1 compute: 0F1 1F0 1B0 0B1
"""
"""Two pipelines in opposite directions, each stage with two homes (arXiv:2412.19437)."""

GANG = """
0 compute: 0F0 0F0.1 1F0.1 0B0.1 0B0
1 compute: 0F0 1F0 1F0.1 1B0.1 1B0
"""
"""Slices next to the bubble are done by both devices together (arXiv:2503.10377)."""

LOANS = """
0 compute: 0F0 0F0.1 0F0.2 0B0.2 0B0.1 0B0
1 compute: 1F0 1F0.1 1F0.2 1B0.2 1B0.1 1B0
"""


def specimens() -> dict[str, Play]:
    """Every play by hand; all of them end well."""
    two = (1, 1)
    return {
        "vocabulary, algorithm 1": Play(World(4, 4, (1,) * 8, loss="T"), lanes(VOCAB_1)),
        "vocabulary, algorithm 2": Play(World(4, 4, (1,) * 8, loss="S"), lanes(VOCAB_2)),
        "input layer": Play(World(2, 2, two, embed="E"), lanes(INPUT_LAYER)),
        "recompute": Play(World(2, 2, (2, 2)), lanes(RECOMPUTE)),
        "offload": Play(World(2, 2, (3,)), lanes(OFFLOAD), after=((work("0L0"), work("0I0.2")),)),
        "skip": Play(World(2, 4, two, skips=((0, 3),)), lanes(SKIP)),
        "attention": Play(World(2, 5, two, weightless=frozenset({1, 3})), lanes(ATTENTION)),
        "braided": Play(
            World(2, 4, two),
            lanes(BRAIDED),
            pairs=((work("0F1"), work("3B0")), (work("1F1"), work("2B0"))),
        ),
        "both ways": Play(World(2, 2, two, copies=2), lanes(BOTH_WAYS)),
        "gang": Play(World(2, 2, (2,)), lanes(GANG), gangs=frozenset({work("0F0"), work("1F0.1")})),
        "loans": Play(World(2, 2, (3,)), lanes(LOANS), loans=((work("0F0.2"), work("1F0.1")),)),
    }
