from fractions import Fraction
from pathlib import Path

import pytest

from penstock.arch.layer_split import even_split
from penstock.core.schedule import Schedule
from penstock.cost.layers import Layer, layered_shape, read_layers, stage_sums
from penstock.cost.model import UnitCost
from penstock.errors import PenstockError
from penstock.files import text
from penstock.sim import simulate

HALF = Fraction(1, 2)


def test_layers_are_counted_out_with_time_and_memory() -> None:
    assert read_layers("2*1,4@0, 1/2@0.5") == (
        Layer(),
        Layer(),
        Layer.even(Fraction(4), Fraction(0)),
        Layer.even(HALF, HALF),
    )


def test_a_file_has_a_line_for_each_kind(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(
        "# a model\nblock x 2: F=2 W=1/2 act=3\n\nlarge head: F=4 stash=1 act=0 # end\n"
    )
    block = Layer(Fraction(2), Fraction(1), HALF, Fraction(3), Fraction(3))
    head = Layer(Fraction(4), Fraction(1), Fraction(1), Fraction(0), Fraction(1))
    assert read_layers(str(path)) == (block, block, head)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("block x: F=1 W", "'W' is not a number"),
        ("block: G=1", "'G' is not known"),
        ("block: F=1/0", "'F=1/0' is not a number"),
        ("F=1 I=1", "is not a layer"),
        ("", "0 layers cannot be divided"),
        ("block x 999999: F=1", "cannot be divided"),
        ("block: F=0 I=0 W=0", "no layer takes any time"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_line(
    content: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.txt"
    path.write_text(content)
    with pytest.raises(PenstockError, match=words) as refusal:
        read_layers(str(path))
    assert refusal.value.hint


@pytest.mark.parametrize("given", ["", "x", "1,x", "1,,2", "1@", "*1", "1/0", "-1", "1e99"])
def test_a_text_that_is_no_list_is_refused(given: str) -> None:
    with pytest.raises(PenstockError) as refusal:
        read_layers(given)
    assert refusal.value.hint


def test_a_stage_weighs_what_its_layers_weigh_together() -> None:
    layers = read_layers("4*1,4@0")
    assert stage_sums(layers, (3, 2)) == [
        Layer.even(Fraction(3), Fraction(3)),
        Layer(*[Fraction(5)] * 3, *[Fraction(1)] * 2),
    ]
    assert sum(even_split(17, 4)) == 17


def test_equal_stages_need_no_shares() -> None:
    assert layered_shape(read_layers("4*1/2"), (2, 2), 2, 3).stage_share == ()


def test_each_kind_and_size_is_priced_with_its_own_share() -> None:
    """Stage 0: F=1 I=2 W=3 act=4 stash=1; stage 1: F=5 I=6 W=7 act=8 stash=2."""
    one = Layer(*map(Fraction, (1, 2, 3, 4, 1)))
    two = Layer(*map(Fraction, (5, 6, 7, 8, 2)))
    shape = layered_shape((one, two), (1, 1), 2, 1)
    lanes = [[("F", 0, 0, 0), ("I", 0, 0, 0), ("W", 0, 0, 0)], [("F", 1, 0, 0), ("B", 1, 0, 0)]]
    schedule = Schedule.of("two", shape, lanes)
    for times, factor in (({}, 1), ({"F": 2, "I": 2, "W": 2}, 2)):
        sizes = {"act": Fraction(3), "stash": Fraction(5)}
        cost = UnitCost(times={k: Fraction(v) for k, v in times.items()}, sizes=sizes)
        timeline = simulate(schedule, cost)
        ends = [int(end) * timeline.tick for end in timeline.end]
        assert ends == [factor * end for end in (1, 1 + 5 + 13 + 2, 1 + 5 + 13 + 2 + 3, 6, 19)]
        assert timeline.peak == (12, 24)


def test_recomputed_forwards_cost_what_forwards_cost_on_their_stage() -> None:
    shape = layered_shape(read_layers("1,3@1"), (1, 1), 2, 1)
    lanes = [[("N", 0, 0, 0), ("R", 0, 0, 0), ("B", 0, 0, 0)], [("F", 1, 0, 0), ("B", 1, 0, 0)]]
    timeline = simulate(Schedule.of("again", shape, lanes))
    assert timeline.work == (4, 9)


def test_slices_divide_the_cost_of_a_stage() -> None:
    one, two = Layer(*map(Fraction, (1, 2, 3, 4, 1))), Layer()
    whole = layered_shape((one, two), (1, 1), 2, 1)
    shape = type(whole)(2, 2, (2,), whole.stage_share, whole.kind_share)
    lanes = [
        [(kind, stage, 0, s) for kind, s in (("F", 0), ("F", 1), ("B", 1), ("B", 0))]
        for stage in (0, 1)
    ]
    timeline = simulate(Schedule.of("cut", shape, lanes))
    assert timeline.work == (6, 3)


def test_a_schedule_with_shares_of_kinds_survives_a_file() -> None:
    shape = layered_shape(read_layers("4*1,4@0"), (3, 2), 2, 1)
    lanes = [[(kind, stage, 0, 0) for kind in "FB"] for stage in (0, 1)]
    schedule = Schedule.of("kept", shape, lanes)
    again = text.loads(text.dumps(schedule))
    assert again == schedule
    assert simulate(again).makespan == simulate(schedule).makespan


def test_a_file_without_end_is_refused_at_once() -> None:
    with pytest.raises(PenstockError, match="'/dev/zero' is larger than 1,000,000 bytes"):
        read_layers("/dev/zero")


def test_a_list_of_too_many_layers_is_refused_before_each_is_read() -> None:
    with pytest.raises(PenstockError, match="10,001 layers cannot be divided into stages"):
        read_layers("1," * 10_000 + "not a layer")


def test_numbers_are_read_as_programs_print_them() -> None:
    assert [layer.F for layer in read_layers("0.3333333333333333,1e-3")] == [
        Fraction(1, 3),
        Fraction(1, 1000),
    ]
