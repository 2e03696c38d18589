"""What `simulate` promises: exact figures, under the names that scripts depend on."""

import json
from pathlib import Path

import pytest

from cli.conftest import Penstock
from penstock.arch.families import to_huggingface
from penstock.arch.presets import model

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


ON_MESH = "simulate 1f1b -p 2 -m 4 --model llama3-8b --tokens 4096 --mesh tensor=2,sequence=2"


def test_a_model_may_stand_in_a_file(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(to_huggingface(model("llama3-8b"))))
    named = penstock(f"{ON_MESH} --json").data
    read = penstock(f"{ON_MESH.replace('llama3-8b', str(file))} --json").data
    assert read == {**named, "model": str(file)}


def test_a_model_on_a_mesh_has_seconds_bytes_and_exposed_communication(penstock: Penstock) -> None:
    data = penstock(f"{ON_MESH},replicas=2 --json").data
    added = list(data)[list(data).index("peak") + 1 :]
    assert added == [
        "model",
        "tokens",
        "hardware",
        "mesh",
        "computing",
        "inside",
        "inside_exposed",
        "boundaries_exposed",
        "copies_exposed",
        "sent",
    ]
    sizes = {
        "replicas": 2,
        "sequence": 2,
        "ring": 1,
        "experts": 1,
        "tensor": 2,
        "norms": "scattered",
        "shard": "none",
        "ranks": 16,
    }
    assert data["mesh"] == sizes
    assert list(data["sent"]) == ["tensor", "ulysses", "stages", "copies", "holders"]
    assert all(type(sent) is int for column in data["sent"].values() for sent in column)
    for inside, exposed in zip(data["inside"], data["inside_exposed"]):
        assert 0 < exposed < inside
    hidden = data["makespan"] - data["copies_exposed"] - data["boundaries_exposed"]
    assert hidden > max(data["computing"]) + max(data["inside_exposed"])
    assert data["copies_exposed"] > data["boundaries_exposed"] > 0


def test_what_is_shared_over_replicas_changes_what_is_sent(penstock: Penstock) -> None:
    """Sums for all of 32 bits, or sums for owners and a gather of 16 bits: 8 bytes and 6."""
    line = "simulate 1f1b -p 2 -m 4 --model llama3-8b --mesh replicas=2 --json"
    answers = [penstock(f"{line} --shard {shard}").data for shard in ("none", "optimizer", "full")]
    none, owned, full = (sum(answer["sent"]["copies"]) for answer in answers)
    assert 6 * none == 8 * owned
    assert full == owned  # one stage for each device is gathered once
    assert [answer["ops"] for answer in answers] == [22, 22, 24]


def test_a_model_without_a_mesh_is_one_rank_for_each_device(penstock: Penstock) -> None:
    data = penstock("simulate 1f1b -p 2 -m 4 --model tiny --json").data
    assert data["mesh"]["ranks"] == data["devices"] == 2
    assert data["inside"] == [0, 0]
    assert data["work"] == pytest.approx(data["computing"])


def test_people_read_milliseconds_of_a_rank(penstock: Penstock) -> None:
    answer = penstock(ON_MESH)
    head, mesh, times, path, exposed, empty, unit, columns, *_ = answer.out.splitlines()
    model, ranks = mesh.split(", on h200: ")
    assert model == "llama3-8b, 4096 tokens in a microbatch"
    assert ranks == "devices 2 x ulysses 2 x tensor 2 = 8 ranks"
    assert (head, empty) == ("1f1b: 2 devices, 4 microbatches, 22 ops", "")
    assert columns.split("   ")[1:4] == ["computing", "in the cell", "exposed"]
    assert times.startswith("makespan ")
    assert " ms, bubble" in times
    assert exposed.startswith("exposed: ")
    assert path.endswith(" ms in transfers")
    assert unit == "ms of one rank of each device"


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        ("--mesh tensor=2", "--mesh needs a model", "for example --model llama3-8b"),
        ("--shard full", "--shard needs a model", "for example --model llama3-8b"),
        ("--model llama3-8b --hop 1", "--hop and --model both", "leave --hop out"),
        ("--model llama3-9b", "no model is called", "did you mean 'llama3-8b'?"),
        ("--model tiny --hardware h20", "there is no hardware", "did you mean 'h200'?"),
        ("--model tiny --tokens 0", "--tokens is 0", "above 0"),
        ("--model llama3-8b --mesh tensor=64", "has 32 query heads", "set mesh.tensor to 32"),
        ("--model tiny --mesh tensor=2,ring=3", "ring is 3, which does not", "a ring of 1"),
        ("--model tiny --mesh sequence=2048,ring=2048", "2,048 ranks share", "at most 1,024"),
        ("--model tiny --tokens 7 --mesh sequence=8,ring=8", "8 ranks share 7 tokens", "7 or less"),
        ("--model tiny --mesh tensr=2", "a mesh has no 'tensr'", "did you mean 'tensor'?"),
    ],
)
def test_a_mesh_that_cannot_be_simulated_is_refused_with_a_hint(
    penstock: Penstock, flags: str, message: str, hint: str
) -> None:
    answer = penstock(f"simulate 1f1b -p 2 -m 2 {flags}")
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert hint in answer.err


def test_slices_need_tokens(penstock: Penstock) -> None:
    answer = penstock("simulate seq1f1b -p 2 -m 2 -k 4 --model tiny --tokens 3")
    assert answer.code == 2
    assert "3 tokens cannot be cut into 4 slices" in answer.err


def test_times_that_vary_are_told_as_parts_of_the_makespan(penstock: Penstock) -> None:
    answer = penstock("simulate gpipe -p 4 -m 8 --jitter 0.05 --draws 10 --straggler 1.5")
    assert "times that vary by 5.0%, 10 draws: 1.0" in answer.out
    slow = "one device 1.5 times as slow: 1.364 to 1.364 of the makespan, the most with device 0"
    assert slow in answer.out


def test_a_model_has_other_times_than_planned_too(penstock: Penstock) -> None:
    line = "simulate 1f1b -p 2 -m 4 --model tiny --tokens 64 --hardware h200 --straggler 2 --json"
    assert all(1 < ratio <= 2 for ratio in json.loads(penstock(line).out)["straggler"]["ratios"])


def test_a_jitter_below_zero_is_refused(penstock: Penstock) -> None:
    answer = penstock("simulate gpipe -p 4 -m 8 --jitter -0.1")
    assert answer.code == 2
    assert "a jitter of -0.1" in answer.err
