"""What `simulate` promises: exact figures, under the names that scripts depend on."""

import pytest

from cli.conftest import Penstock

UNIT = "--times F=1,I=1,W=1 --json"


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (
            f"simulate seq1f1b -p 4 -m 8 -k 4 {UNIT}",
            {"makespan": 26.25, "peak": [1.75, 1.5, 1.25, 1]},
        ),
        (f"simulate seq1f1b-zb -p 4 -m 8 -k 2 {UNIT}", {"makespan": 25.5}),
        (f"simulate zb-h1 -p 4 -m 8 {UNIT}", {"span": 27}),
        (f"simulate zb-h2 -p 4 -m 8 {UNIT}", {"span": 24}),
        (
            "simulate zb-auto -p 4 -m 8 --times F=3,I=4,W=2 --hop 1 --sizes act=2,stash=1 "
            "-o limit=12 --json",
            {"span": 86, "bubble_span": 14 / 86, "peak": [12, 11, 9, 9]},
        ),
        (f"simulate seq1f1b-i -p 4 -m 8 -k 2 -v 2 {UNIT}", {"makespan": 26.25}),
        (f"simulate slimpipe -p 4 -m 2 -k 8 -v 2 {UNIT}", {"makespan": 6.5625}),
    ],
)
def test_published_figures_come_out_exactly(
    penstock: Penstock, line: str, figures: dict[str, object]
) -> None:
    answer = penstock(line)
    assert (answer.code, answer.err) == (0, "")
    assert {key: answer.data[key] for key in figures} == figures


def test_json_has_the_contract_fields_in_order(penstock: Penstock) -> None:
    assert list(penstock("simulate 1f1b -p 2 -m 2 --json").data.items()) == [
        ("name", "1f1b"),
        ("devices", 2),
        ("microbatches", 2),
        ("chunks", 1),
        ("slices", 1),
        ("ops", 8),
        ("makespan", 9),
        ("span", 9),
        ("work", [6, 6]),
        ("bubble_makespan", 1 / 3),
        ("bubble_span", 1 / 3),
        ("peak", [2, 1]),
    ]


def test_people_get_a_table(penstock: Penstock) -> None:
    assert penstock("simulate seq1f1b -p 4 -m 8 -k 4") == (
        0,
        """\
seq1f1b: 4 devices, 8 microbatches, 4 slices each, 256 ops
makespan 26.25, bubble 8.57%; span 26.25, bubble 8.57%
critical path: 70 ops (35 F, 35 B), 0 in transfers

device   work   peak
────────────────────
     0     24   1.75
     1     24    1.5
     2     24   1.25
     3     24      1
""",
        "",
    )


def test_prices_are_exact(penstock: Penstock) -> None:
    line = "simulate 1f1b -p 2 -m 1 --times F=0.1,I=1/5,W=0.3 --hop 0.05 --json"
    assert penstock(line).data["makespan"] == 1.3  # 2 (0.1 + 0.2 + 0.3) + 2 x 0.05


def test_a_part_of_the_times_may_be_causal_attention(penstock: Penstock) -> None:
    line = "simulate slimpipe -p 4 -m 4 -k 8 --attention 1 --json"
    assert penstock(line).data["makespan"] == 16.078125


def test_tensor_parallel_communication_is_priced(penstock: Penstock) -> None:
    line = "simulate stp -p 2 -m 8 --times F=2,I=2,W=2 --communication 1 --json"
    assert penstock(line).data["makespan"] == 52


def test_sizes_scale_the_peak(penstock: Penstock) -> None:
    assert penstock("simulate 1f1b -p 2 -m 4 --sizes act=1/2 --json").data["peak"] == [1, 0.5]


def test_a_fixed_number_of_chunks_is_reported(penstock: Penstock) -> None:
    for line in ("simulate zb-v -p 4 -m 8 --json", "simulate zb-v -p 4 -m 8 -v 2 --json"):
        assert penstock(line).data["chunks"] == 2


def test_options_reach_the_schedule(penstock: Penstock) -> None:
    plain = penstock("simulate kfkb -p 4 -m 8 --json")
    grouped = penstock("simulate kfkb -p 4 -m 8 -o group=4 --json")
    assert grouped.code == plain.code == 0
    assert grouped.data["peak"] != plain.data["peak"]
