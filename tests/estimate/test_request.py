"""Rows are read with what is wrong told, and answered one line for one line."""

from dataclasses import replace
from json import dumps, loads
from pathlib import Path
from typing import Any

import pytest

from estimate.layouts import LLAMA_13B, row
from loops import each
from penstock.arch.families import to_huggingface
from penstock.arch.presets import MODELS
from penstock.errors import ShapeError
from penstock.estimate import answer
from penstock.estimate.answer import answer_lines, answer_row
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.many import answer_many
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.reasons import reasons
from penstock.estimate.request import layout_from

FIELDS = {
    "step_seconds",
    "tokens_per_second",
    "flops_utilisation",
    "hardware_utilisation",
    "bubble",
    "exposed_communication_seconds",
    "peak_bytes",
    "fits",
    "reasons",
    "replicas",
    "ring",
    "microbatches",
    "layers",
    "host_bytes",
}
CLASSES = {
    *("weights", "gradients", "optimizer", "activations", "keys_values", "logits"),
    *("temporaries", "communication_buffers", "context", "fragmentation", "total"),
}


def test_an_answer_has_the_fields_of_the_contract() -> None:
    found = answer_row(row(mesh="tensor=2,pipeline=2"))
    assert set(found) == FIELDS
    assert [set(each) for each in found["peak_bytes"]] == [CLASSES, CLASSES]
    assert set(found["exposed_communication_seconds"]) == {"tensor", "sequence", "stages", "copies"}


def test_a_mesh_may_be_text_or_an_object() -> None:
    text = layout_from(row(mesh="tensor=2,pipeline=4"))
    assert text == layout_from(row(mesh={"tensor": 2, "pipeline": 4}))
    assert (text.mesh.tensor, text.pipeline, text.mesh.replicas) == (2, 4, 8)


@pytest.mark.parametrize(
    ("mesh", "ring"),
    [("sequence=64", 2), ("tensor=8,sequence=8", 2), ("sequence=32", 1), ("sequence=8,ring=8", 8)],
)
def test_ranks_without_a_head_to_exchange_pass_keys_round(mesh: str, ring: int) -> None:
    """32 heads; unless a row says how many ranks are in a ring."""
    sizes = {"model": "llama3-8b", "cluster": "h100:64", "tokens": 65536}
    found = answer_row(row(**sizes, mesh=mesh, recompute="all"))
    assert found.get("ring") == ring, found


def test_a_model_may_be_a_name_a_file_or_sizes(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(dumps(to_huggingface(MODELS["llama3-8b"])))
    preset = layout_from(row(model="llama3-8b")).model
    assert layout_from(row(model=str(file))).model == preset
    assert layout_from(row(model=str(tmp_path))).model == preset
    experts = MODELS["mixtral-8x7b"]
    assert layout_from(row(model=to_huggingface(experts))).model == experts
    sizes = layout_from(row()).model
    assert (sizes.kv_heads, sizes.head_size, sizes.gated, sizes.tied) == (40, 128, True, False)


@each("shard", ("none", "optimizer", "full"))
@each("tied", (True, False))
def test_models_without_a_gate_are_estimated(shard: str, tied: bool) -> None:
    """Most published steps are of such models, though a run has gated ones alone."""
    model = {"layers": 8, "hidden": 1024, "ffn": 4096, "heads": 16, "vocabulary": 51200}
    mesh = {"tensor": 2, "pipeline": 2}
    plain, gated = (
        answer_row(row(model=model | {"gated": gate, "tied": tied}, mesh=mesh, shard=shard))
        for gate in (False, True)
    )
    assert plain.get("error") is None
    assert plain["step_seconds"] < gated["step_seconds"]
    for less, more in zip(plain["peak_bytes"], gated["peak_bytes"]):
        assert all(less[name] < more[name] for name in ("weights", "gradients", "activations"))


def test_options_may_be_an_object_or_a_list() -> None:
    assert layout_from(row(options={"group": 4})) == layout_from(row(options=["group=4"]))
    assert layout_from(row(options=[])) == layout_from(row())


def test_numbers_of_a_spreadsheet_are_whole_and_its_empty_cells_are_left_out() -> None:
    sizes = {"layers": 8, "hidden": 512, "ffn": 1024, "heads": 8, "vocabulary": 4096}
    plain = row(model=sizes, mesh={"tensor": 2, "pipeline": 4})
    points = {key: float(size) for key, size in sizes.items()}
    written = {key: float(each) if type(each) is int else each for key, each in plain.items()}
    mesh = {"tensor": 2.0, "pipeline": 4.0, "replicas": None}
    found = answer_row(written | {"model": points | {"kv_heads": None}, "mesh": mesh})
    assert "error" not in found
    assert found == answer_row(plain)


def test_a_null_stands_for_what_is_left_out() -> None:
    assert layout_from(row(chunks=None, options=None)) == layout_from(row())


WRONG: dict[str, dict[str, Any]] = {
    "a layout has no 'atention'": row(atention="flash2"),
    "schedule is missing": {key: value for key, value in row().items() if key != "schedule"},
    "cluster, tokens, batch_tokens, schedule are missing": {"model": "tiny"},
    "model.hidden is 5,120, which is not a multiple of model.heads, 7": row(
        model=LLAMA_13B | {"heads": 7}
    ),
    "tokens is '2048'": row(tokens="2048"),
    "rows is True": row(rows=True),
    "fused_norm is 'maybe'": row(fused_norm="maybe"),
    "attention is 'flash9'": row(attention="flash9"),
    "recompute is 'layers=x'": row(recompute="layers=x"),
    "a mesh has no 'tensr'": row(mesh="tensr=2"),
    "mesh 'tensor=2,tensor=4' has tensor twice": row(mesh="tensor=2,tensor=4"),
    "mesh 'tensor': 'tensor' is not a size": row(mesh="tensor"),
    "a mesh has no 'tp'": row(mesh="tp=2"),
    "a mesh has no 'ep'": row(mesh="ep=2"),
    "'meta-llama/Meta-Llama-3-8B' is not a folder": row(model="meta-llama/Meta-Llama-3-8B"),
    "tensor of the mesh is 'x'": row(mesh="tensor=x"),
    "a model has no 'hiden'": row(model=LLAMA_13B | {"hiden": 3}),
    "model has no ffn": row(model={k: v for k, v in LLAMA_13B.items() if k != "ffn"}),
    "model.layers is 0": row(model=LLAMA_13B | {"layers": 0}),
    "no model is called 'llama9'": row(model="llama9"),
    "model is 3": row(model=3),
    "no cluster is called 'h10'": row(cluster="h10:64"),
    "options is [1]": row(options=[1]),
    "no schedule is called '1f1c'": row(schedule="1f1c"),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_row_is_answered_with_what_is_wrong(message: str) -> None:
    found = answer_row(WRONG[message])
    assert message in found["error"]
    assert found["hint"]


def test_what_is_wrong_with_a_file_of_a_model_is_told_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(dumps(to_huggingface(MODELS["tiny"]) | {"hidden_size": "128"}))
    for name in (file, tmp_path):
        assert answer_row(row(model=str(name)))["error"] == f"{file}: hidden_size is '128'"
    file.write_text("{}")
    assert answer_row(row(model=str(file)))["error"] == f"{file}: config.json has no model_type"


def test_a_row_without_an_end_to_its_brackets_is_refused_in_our_words() -> None:
    (found,) = map(loads, answer_lines(["[" * 90_000]))
    assert found == {"error": "the row is nested too deeply", "hint": "nest less"}


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"mesh": "tp=2"}, "did you mean 'tensor'?"),
        ({"mesh": "DP=2"}, "did you mean 'replicas'?"),
        ({"mesh": "ep=2"}, "leave it out: the time of what ranks send to experts"),
        ({"tokens": 10**30}, "give at most 1,125,899,906,842,624"),
        ({"tokens": 0}, "give a whole number above 0"),
    ],
)
def test_a_hint_says_what_may_be_meant(changes: dict[str, Any], hint: str) -> None:
    assert answer_row(row(**changes))["hint"].startswith(hint)


def test_the_rest_is_answered_in_the_same_order() -> None:
    lines = [dumps(row()), "", "[1, 2]", "{", dumps(row(tokens=0)), dumps(row(mesh="tensor=2"))]
    found = [loads(line) for line in answer_lines(lines)]
    assert [("error" in each) for each in found] == [False, True, True, True, False]
    assert found[0] == answer_row(row())
    assert found[4] == answer_row(row(mesh="tensor=2"))


def test_a_mistake_of_ours_in_one_row_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = answer.estimate

    def mistaken(layout: TrainingLayout) -> Estimate:
        if layout.rows == 2:
            raise ZeroDivisionError("division by zero")
        return whole(layout)

    monkeypatch.setattr(answer, "estimate", mistaken)
    first, second, third = map(loads, answer_lines(map(dumps, (row(), row(rows=2), row()))))
    assert "mistake of Penstock" in second["hint"]
    assert second["error"].startswith("ZeroDivisionError")
    assert first == third
    assert first["fits"] is not None


@pytest.mark.processes
def test_many_rows_are_answered_by_several_processes_as_by_one() -> None:
    lines = [dumps(row(mesh="tensor=8", rows=1 + at % 2)) for at in range(400)]
    found = [*answer_many(lines)]
    assert found == [*answer_lines(lines[:2])] * 200


def test_what_does_not_fit_says_how_much_it_lacks() -> None:
    found = answer_row(row(cluster="a100-40:64", shard="none"))
    assert not found["fits"]
    assert "lacks" in found["reasons"][0]
    assert any("shard=optimizer over 64 copies would free" in each for each in found["reasons"])


def test_whole_stages_that_are_gathered_are_told_where_memory_lacks() -> None:
    whole = {"model": "llama3-70b", "mesh": "tensor=2", "shard": "full"}
    words = " ".join(reasons(estimate(layout_from(row(**whole)))))
    assert "shard=full gathers whole stages, and a device has 1 stage" in words
    parts = {"schedule": "breadth-first", "chunks": 16}
    found = estimate(layout_from(row(**whole, **parts)))
    assert not any("gathers whole stages" in each for each in reasons(found))


def test_a_batch_that_does_not_divide_says_which_do() -> None:
    with pytest.raises(ShapeError) as caught:
        layout_from(row(batch_tokens=1_000_000))
    assert caught.value.hint == "give 917,504 or 1,048,576"


def test_little_room_is_told() -> None:
    layout = layout_from(row(mesh="tensor=2,pipeline=4"))
    most = max(each.total for each in estimate(layout).memory)
    for room, told in ((int(1.01 * most), True), (int(1.5 * most), False), (most - 1, False)):
        gpu = replace(layout.cluster.gpu, memory=room)
        found = estimate(replace(layout, cluster=replace(layout.cluster, gpu=gpu)))
        assert (
            any("is to spare, and estimates may be off" in each for each in reasons(found)) == told
        )


def test_sizes_of_a_model_that_are_no_numbers_are_refused_whatever_came_before() -> None:
    sizes = {"layers": 1, "hidden": 64, "ffn": 64, "heads": 2, "vocabulary": 64, "gated": True}
    wrong: list[dict[str, Any]] = [{"kv_heads": [1]}, {"heads": {}}, {"layers": True}, {"gated": 1}]
    assert "error" not in answer_row(row(model=sizes))
    for change in wrong:
        (name,) = change
        assert f"model.{name} is " in answer_row(row(model=sizes | change))["error"]
