"""PyTorch's CSV without PyTorch: the grammar both ways, and what it has no word for."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.strategies import small, usual
from loops import each
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import FormatError, ShapeError
from penstock.files import text, torch_csv

PLAIN = """\
0F0,0F1,0B0,0B1
1F0,1B0,1F1,1B1
"""
OVERLAPPED = """\
0F0,0F1,(0F2;3B0)OVERLAP_F_B,3I1,3W1
1F0,2F0,2B0
"""


@st.composite
def expressible(draw: st.DrawFn) -> Schedule:
    """A schedule in the grammar's reach: every device, stage and microbatch has an op."""
    stages, microbatches = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    devices = draw(st.integers(1, stages))
    ops = st.builds(
        Op,
        st.sampled_from("FBIW"),
        st.integers(0, stages - 1),
        st.integers(0, microbatches - 1),
        st.just(0),
    )
    overlaps = st.tuples(ops.map(lambda op: op._replace(kind="F")), ops.filter(_is_backward))
    lanes = [draw(st.lists(ops | overlaps, min_size=1, max_size=6)) for _ in range(devices)]
    lanes[0] += [Op("F", s, i) for s in range(stages) for i in range(microbatches)]
    return Schedule.of("", Shape(devices, stages, (1,) * microbatches), lanes)


def _is_backward(op: Op) -> bool:
    return op.kind != "F"


def _lies_flat(schedule: Schedule) -> bool:
    """Whether no pair can be mistaken for two ops that merely stand side by side."""
    beside = [pair for _, _, ops in schedule.table.lanes() for pair in pairwise(ops)]
    return all(beside.count(pair) == 1 for pair in schedule.pairs)


@usual
@given(expressible().filter(_lies_flat))
def test_a_schedule_comes_back_from_csv_as_it_was(schedule: Schedule) -> None:
    again = torch_csv.loads(torch_csv.dumps(schedule))
    assert again == schedule


def test_plain_actions_are_lanes() -> None:
    assert torch_csv.dumps(small()) == PLAIN
    assert torch_csv.loads(PLAIN) == small()


def test_an_overlap_is_a_pair() -> None:
    schedule = torch_csv.loads(OVERLAPPED, "mine")
    assert schedule.name == "mine"
    assert schedule.shape == Shape(2, 4, (1, 1, 1))
    assert schedule.pairs == ((Op("F", 0, 2), Op("B", 3, 0)),)
    assert " ".join(map(str, schedule.lane(0))) == "0F0 0F1 0F2 3B0 3I1 3W1"
    assert torch_csv.dumps(schedule) == OVERLAPPED


def test_idle_cells_quotes_spaces_and_line_ends_do_not_matter() -> None:
    loose = '0F0, 0F1,,"0B0",0B1,,\r\n,1F0,1B0,1F1,1B1\r\n\n'
    assert torch_csv.loads(loose) == small()


def test_communication_is_dropped_because_it_follows_from_the_order() -> None:
    full = (
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n"
    )
    with pytest.warns(UserWarning, match="8 sends and receives are not read and not checked"):
        assert torch_csv.loads(full) == small()


@each(
    ("written", "place", "message"),
    [
        ("", (1, 1), "no compute action"),
        ("0F0\n\n1F0", (2, 1), "no compute action"),
        ("0F0\n,,\n", (2, 1), "no compute action"),
        ("0F0\n1SEND_F0", (2, 1), "no compute action"),
        ("0F0,0X0", (1, 5), "'0X0' is not an action"),
        ("0F0, -1F0", (1, 6), "'-1F0' is not an action"),
        ("0F0,0F", (1, 5), "'0F' is not an action"),
        ("0F0,0F0.1", (1, 5), "'0F0.1' is not an action"),
        ("0F0,0F0\0", (1, 5), "'0F0\\x00' is not an action"),
        ("0F0,\u0663F0", (1, 5), "is not an action"),
        ("0F0,(0F1;0B0)OVERLAP", (1, 5), "'(0F1;0B0)OVERLAP' is not an action"),
        ("0F0,(0F1)OVERLAP_F_B", (1, 5), "'(0F1)OVERLAP_F_B' is not an action"),
        ("0F0,()OVERLAP_F_B", (1, 5), "'()OVERLAP_F_B' is not an action"),
        ("0F0,(0F1;0SEND_F0)OVERLAP_F_B", (1, 5), "is not an action"),
        ("0F0,0F1\n1F0,9999F9999", (2, 5), "above the limit of 20,000,000 ops"),
        ("0F" + "9" * 5000, (1, 1), "is not an action"),
        ("0F0\n0B0\n0F1", (3, 1), "3 devices cannot share 1 stage"),
        ("((((((0F0", (1, 1), "is not an action"),
    ],
)
def test_refused_with_the_place_and_a_hint(
    written: str, place: tuple[int, int], message: str
) -> None:
    with pytest.raises(FormatError) as refusal:
        torch_csv.loads(written)
    assert (refusal.value.line, refusal.value.column) == place
    assert message in refusal.value.message
    assert refusal.value.hint


TWO = "devices: 1\nstages: 2\nslices: 1 x 2\n"
LANE = "0 compute: 0F0 1F0 0F1 1F1 1B0 0B0\n"


@each(
    ("written", "named"),
    [
        ("devices: 1\nstages: 1\nslices: 2 x 1\n0 compute: 0F0 0F0.1 0B0.1", "0F0.1"),
        ("devices: 1\nstages: 1\nslices: 2 x 1\n0 compute: 0F0", "several slices"),
        (f"{TWO}embed: E\n0 compute: 0E0 0F0 1F0 0F1 1F1", "0E0"),
        (f"{TWO}embed: E\n{LANE}", "vocabulary shards"),
        (f"{TWO}loss: S\n{LANE}", "vocabulary shards"),
        (f"{TWO}0 compute: 0F0 0F1 1F0 1F1 0S0", "0S0"),
        (f"{TWO}0 compute: 0F0 1N0 0F1 1F1", "1N0"),
        (f"{TWO}0 compute: 0F0 1F0 0F1 1F1 0R0", "0R0"),
        (f"{TWO}0 compute: 0F0 1F0 0F1 1F1 1U0", "1U0"),
        (f"{TWO}{LANE}0 copy: 0O0", "0O0 on device 0"),
        (f"{TWO}{LANE}0 collective: 1G0", "1G0 on device 0"),
        (f"{TWO}gang: 0F0\n{LANE}", "the gang 0F0"),
        (f"{TWO}loan: 1F1 0F1 1\n{LANE}", "the loan to 0F1"),
        (f"{TWO}after: 0F1 1F0\n{LANE}", "the wait of 0F1"),
        (f"{TWO}share: 0F1 1/2\n{LANE}", "the share of 0F1"),
        (f"{TWO}pair: 0F0 1F0\n{LANE}", "the pair that starts with 0F0"),
        (f"{TWO}pair: 0F0 1F0 1B0\n{LANE}", "the pair that starts with 0F0"),
        (f"{TWO}pair: 0F1 0B0\n{LANE}", "0F1 and 0B0 are a pair"),
        (f"{TWO}skips: 0-1\n{LANE}", "skip edges"),
        (f"{TWO}weightless: 1\n{LANE}", "weightless stages"),
        (f"{TWO}copies: 2\n{LANE}", "weights on several devices"),
        ("devices: 2\nstages: 2\nslices: 1 x 2\n" + LANE, "a device without ops"),
        ("devices: 1\nstages: 3\nslices: 1 x 2\n" + LANE, "a stage without ops"),
        ("devices: 1\nstages: 2\nslices: 1 x 3\n" + LANE, "a microbatch without ops"),
    ],
)
def test_what_the_grammar_cannot_say_is_refused_by_name(written: str, named: str) -> None:
    with pytest.raises(ShapeError) as refusal:
        torch_csv.dumps(text.loads(written))
    assert named in refusal.value.message
    assert "text lanes or JSON" in refusal.value.hint


def test_prices_are_left_out_because_they_are_no_part_of_the_order() -> None:
    priced = f"{TWO}stage_share: 1/2 3/2\nslice_share: 1/2; 2\nboundary_bytes: 7\n{LANE}"
    plain = text.loads(TWO + LANE)
    assert torch_csv.loads(torch_csv.dumps(text.loads(priced))) == plain


@pytest.mark.parametrize("content", ["0F0,1000000F1\n", "0F0,0F1000000\n", "99999F0,0F99\n"])
def test_sizes_that_the_ops_are_far_from_are_refused_before_any_table_is_made(content: str) -> None:
    with pytest.raises(FormatError, match="ops, but there are 2") as caught:
        torch_csv.loads(content)
    assert "without gaps" in caught.value.hint
    with pytest.raises(FormatError, match="ops, but there are 1"):
        text.loads("devices: 1\nstages: 1000000\nslices: 1 x 2\n0 compute: 0F0\n")


def test_a_file_that_lacks_some_ops_is_read() -> None:
    assert len(torch_csv.loads("0F0,9F9\n").table) == 2
