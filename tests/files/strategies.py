"""Random schedules with everything a file can hold, most of them illegal, and damaged files."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from penstock.core.ops import KINDS, STREAMS, Op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import TO_ATTENTION, WEIGHED, Shape

FULL = """\
name: everything at once
devices: 2
stages: 4
slices: 2 1 2
stage_share: 1/2 3/2 1 1
kind_share: W 1 2 3 0; act 1/2 0 1 1
slice_share: 1/4 3/4; 1; 1/2 1/2
boundary_bytes: 4096 0 8
skips: 0-3 1-2
weightless: 1 3
copies: 2
embed: E
loss: T
to_attention: weights
layers: 3 0 2 1
pair: 0F1 3B0
pair: 0F2 1F2 3B1
loan: 3F0.1 0F1 2
gang: 2F0
after: 0F2 1B0
share: 0O0 1/2
0 compute: 0F0 0F0.1 2F0 0F1 3B0
0 copy: 0O0 0L0
1 compute: 1F0 1F0.1 2F0
1 collective: 1G0 1Z0
"""
"""Text lanes with every key there is."""

usual = settings(deadline=None)
"""No deadline: a busy machine is no defect of a parser."""
thorough = settings(deadline=None, max_examples=300)

numbers = st.integers(0, 12) | st.integers(0, 999_999_999)
shares = st.fractions(min_value=0, max_value=2, max_denominator=10**12)
ops = st.builds(Op, st.sampled_from(list(KINDS)), numbers, numbers, numbers)
names = st.text(max_size=20).filter(lambda name: name.isprintable() and name == name.strip())


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The default half of the time."""
    return st.just(()) | values


def _kind_shares(stages: int) -> st.SearchStrategy[Any]:
    by_name = st.dictionaries(st.sampled_from(WEIGHED), st.tuples(*[shares] * stages))
    return by_name.map(lambda found: tuple(found.items()))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    stages = draw(st.integers(1, 5))
    devices = draw(st.integers(1, stages))
    microbatches = draw(st.integers(1, 5))
    even = st.integers(1, 4).map(lambda count: (count,) * microbatches)
    slices = draw(even | st.tuples(*[st.integers(1, 4)] * microbatches))
    edges = st.sampled_from([(i, j) for j in range(stages) for i in range(j)] or [None])
    same = st.tuples(*[shares] * slices[0]).map(lambda row: (row,) * microbatches)
    ragged = st.tuples(*[st.tuples(*[shares] * count) for count in slices])
    return Shape(
        devices,
        stages,
        slices,
        stage_share=draw(_maybe(st.tuples(*[shares] * stages))),
        kind_share=draw(_maybe(_kind_shares(stages))),
        slice_share=draw(_maybe(same if len(set(slices)) == 1 else ragged) | ragged),
        boundary_bytes=draw(_maybe(st.tuples(*[st.integers(0, 10**18 - 1)] * (stages - 1)))),
        skips=draw(_maybe(st.lists(edges, max_size=3, unique=True).map(tuple)))
        if stages > 1
        else (),
        ties=draw(_maybe(st.lists(edges, max_size=2, unique=True).map(tuple)))
        if stages > 1
        else (),
        weightless=draw(st.frozensets(st.integers(0, stages - 1))),
        copies=draw(st.integers(1, 3)),
        embed=draw(st.sampled_from("FE")),
        loss=draw(st.sampled_from("FST")),
        to_attention=draw(st.sampled_from(TO_ATTENTION)),
        layers=draw(_maybe(st.tuples(*[numbers] * stages))),
    )


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A schedule whose every field is drawn on its own."""
    shape = draw(shapes())
    heads = st.tuples(st.integers(0, shape.devices - 1), st.sampled_from(STREAMS))
    lanes = draw(
        st.dictionaries(heads, st.lists(ops, max_size=6), min_size=1).filter(
            lambda found: any(found.values())
        )
    )
    several = st.lists(ops, min_size=2, max_size=3).map(tuple)
    return Schedule.from_lanes(
        draw(names),
        shape,
        [(device, stream, lane) for (device, stream), lane in lanes.items()],
        pairs=draw(_maybe(st.lists(several, max_size=3).map(tuple))),
        loans=draw(_maybe(st.lists(st.builds(Loan, ops, ops, numbers), max_size=3).map(tuple))),
        gangs=draw(_maybe(st.lists(ops, max_size=3).map(tuple))),
        after=draw(_maybe(st.lists(st.builds(After, ops, ops), max_size=3).map(tuple))),
        shares=draw(_maybe(st.lists(st.tuples(ops, shares), max_size=3).map(tuple))),
    )


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """A text with a few lines or characters dropped, doubled, inserted or replaced."""
    for _ in range(draw(st.integers(1, 3))):
        pieces = text.split("\n") if draw(st.booleans()) else list(text)
        between = "\n" if "\n" in text and len(pieces) == text.count("\n") + 1 else ""
        at = draw(st.integers(0, max(0, len(pieces) - 1)))
        new = draw(st.sampled_from([[], pieces[at : at + 1] * 2]) | _insertions)
        text = between.join([*pieces[:at], *new, *pieces[at + 1 :]])
    return text


_insertions = st.one_of(
    st.text(max_size=3).map(lambda text: [text]),
    st.sampled_from(
        [
            "-1",
            "0",
            "9" * 30,
            "1/0",
            "NaN",
            "\0",
            "\ud800",
            '"',
            "[" * 9,
            "{",
            "x",
            ":",
            ";",
            ",",
            "\n",
        ]
    ).map(lambda text: [text]),
)


def everything(schedule: Schedule) -> tuple[Any, ...]:
    """Every field, to be compared: the schedules' own `==` leaves out the name."""
    annotations = (schedule.pairs, schedule.loans, schedule.gangs, schedule.after, schedule.shares)
    return schedule.name, schedule.shape, list(schedule.table.lanes()), annotations, schedule.digest


def small(name: str = "small") -> Schedule:
    """Two devices, two stages, two microbatches: a valid file to damage."""
    lanes = [
        [Op("F", 0, 0), Op("F", 0, 1), Op("B", 0, 0), Op("B", 0, 1)],
        [Op("F", 1, 0), Op("B", 1, 0), Op("F", 1, 1), Op("B", 1, 1)],
    ]
    return Schedule.of(name, Shape(2, 2, (1, 1)), lanes)
