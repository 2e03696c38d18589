"""What settings amount to: devices, schedule, slices, layers."""

import itertools
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from loops import each
from penstock.arch.cell_shape import CellShape
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import MODELS
from penstock.errors import PenstockError
from penstock.plan.slices import equal_flops_of_model, flops_shares
from penstock.run.comm.grid import Grid
from penstock.schedules import build, registry
from penstock.train.config.load import load, loads
from penstock.train.loop.mesh_picture import mesh_picture
from penstock.train.loop.setup import RunSetup, architecture, layout_of
from penstock.train.report.compared import compared_schedules
from train.samples import short

SLICED = '[pipeline]\nschedule = "seq1f1b"\nslices = 4\n[batch]\nlength = 64\n'
EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.toml"
CELLS = EXAMPLE.with_name("cells.toml")


def sliced(*overrides: str, processes: int = 2) -> RunSetup:
    return layout_of(loads(SLICED, overrides), processes)


def refusal(*overrides: str, processes: int = 2) -> str:
    with pytest.raises(PenstockError) as caught:
        sliced(*overrides, processes=processes)
    return str(caught.value)


def test_all_processes_are_devices_unless_told_otherwise() -> None:
    assert layout_of(short(), 3).schedule.shape.devices == 3
    assert layout_of(short("mesh.replicas=2"), 6).schedule.shape.devices == 3
    cells = ("mesh.replicas=2", "mesh.sequence=2", "mesh.tensor=2")
    assert layout_of(short(*cells), 24).schedule.shape.devices == 3


def test_a_layout_has_the_mesh_of_the_settings() -> None:
    cells = ("mesh.tensor=2", "mesh.sequence=2", "mesh.ring=2", "pipeline.devices=3")
    order = 'mesh.order=["tensor", "device", "sequence", "replica"]'
    reordered = ("tensor", "device", "sequence", "replica")
    layout = layout_of(short(*cells, order), 12)
    assert layout.mesh == MeshShape(sequence=2, ring=2, tensor=2, order=reordered)
    assert layout.mesh.ranks(layout.schedule.shape.devices) == 12
    assert layout_of(short("pipeline.devices=2", "mesh.replicas=2"), 4).mesh.replicas == 2


@each(
    ("overrides", "processes", "message"),
    [
        (
            ["mesh.replicas=2"],
            3,
            "3 processes cannot be mesh.replicas 2\n"
            "hint: start 2 or 4 of them, or change these sizes",
        ),
        (
            ["mesh.replicas=2"],
            1,
            "1 process cannot be mesh.replicas 2\nhint: start 2 of them, or change these sizes",
        ),
        (
            ["pipeline.devices=4"],
            2,
            "2 processes cannot be pipeline.devices 4\n"
            "hint: start 4 of them, or change these sizes",
        ),
        (
            ["mesh.replicas=2", "mesh.tensor=2"],
            6,
            "6 processes cannot be mesh.replicas 2 x mesh.tensor 2\n"
            "hint: start 4 or 8 of them, or change these sizes",
        ),
        (
            ["pipeline.devices=3", "mesh.sequence=2", "mesh.ring=2", "mesh.tensor=2"],
            8,
            "8 processes cannot be pipeline.devices 3 x mesh.sequence 2 x mesh.tensor 2\n"
            "hint: start 12 of them, or change these sizes",
        ),
    ],
)
def test_processes_that_cannot_be_shared_out_are_refused_with_the_nearest_that_can(
    overrides: list[str], processes: int, message: str
) -> None:
    assert refusal(*overrides, processes=processes) == message


def test_a_mesh_that_the_model_has_no_part_for_is_refused() -> None:
    assert refusal("mesh.tensor=8", processes=8) == (
        "mesh.tensor is 8, but the model has 4 query heads\nhint: set mesh.tensor to 4 or less"
    )


def test_a_name_gives_the_registered_schedule_of_the_run() -> None:
    layout = layout_of(short("batch.microbatches=5"), 2)
    assert layout.schedule == build("gpipe", devices=2, microbatches=5)
    assert layout.lengths == ((1024,),) * 5


def test_slices_have_equal_flops_and_their_share_of_the_work() -> None:
    layout = sliced()
    model = layout.model
    lengths = equal_flops_of_model(model, 64, 4)
    linear, attention = model.flops_per_token, model.flops_per_pair
    assert layout.lengths == (lengths,) * 4
    shares = flops_shares(lengths, linear=linear, attention=attention)
    assert layout.schedule.shape.slice_share == (shares,) * 4


def test_slices_can_be_even_or_given() -> None:
    assert sliced("pipeline.cut=even").lengths[0] == (16, 16, 16, 16)
    given = sliced("pipeline.cut=[10, 20, 4, 30]")
    assert given.lengths[0] == (10, 20, 4, 30)
    assert sum(given.schedule.shape.slice_share[0]) == Fraction(1)


def test_layers_are_split_evenly_or_as_given() -> None:
    assert sliced(processes=4).layers == (1, 1, 1, 1)
    assert sliced("pipeline.layers=[3, 1]").layers == (3, 1)
    assert "do not hold 4 layers in 2 stages" in refusal("pipeline.layers=[2, 1, 1]")


def test_a_schedule_that_is_made_for_a_cut_of_the_layers_gets_it() -> None:
    made = '[pipeline]\nschedule = "1f1b-redis"\noptions = {layers = 4, head = 2}\n'
    made += '[model]\npreset = "tiny"\n'
    assert layout_of(loads(made, ["model.layers=8"]), 2).layers == (5, 3)
    assert layout_of(loads(made, ["model.layers=8", "pipeline.layers=[4, 4]"]), 2).layers == (4, 4)
    for other in (made, made.replace("1f1b-redis", "gpipe").replace("options", "#")):
        settings = loads(other, ['log.compare=["1f1b-redis"]', "model.layers=9"])
        with pytest.raises(PenstockError, match="does not fit a model of 9"):
            layout_of(settings, 2)


def test_recompute_takes_all_forwards_all_but_some_slices_or_some_stages() -> None:
    def light(*overrides: str) -> set[str]:
        lanes = (sliced(*overrides).schedule.lane(device) for device in range(2))
        return {f"{op.stage}.{op.slice}" for lane in lanes for op in lane if op.kind == "N"}

    assert light() == set()
    assert len(light("pipeline.recompute=all")) == 8
    assert light("pipeline.recompute=[1]") == {"1.0", "1.1", "1.2", "1.3"}
    kept = light("pipeline.recompute=all", "pipeline.keep_slices=3")
    assert kept == {"0.0", "1.0"}


def test_a_vocabulary_in_shards_and_activations_on_the_host_go_with_any_schedule() -> None:
    found = sliced("pipeline.vocabulary=shards", "pipeline.offload=all").schedule
    assert found.shape.shards == 2
    offloaded = {op.stage for op in found.table.ops() if op.kind == "O"}
    assert offloaded
    of_one = sliced("pipeline.offload=[0]").schedule
    assert {op.stage for op in of_one.table.ops() if op.kind == "O"} == {0} & offloaded
    assert "there are 2 stages" in refusal("pipeline.offload=[2]")
    twice = refusal("pipeline.schedule=vocab-seq1f1b", "pipeline.vocabulary=shards")
    assert "cannot be spread any more" in twice


def test_options_reach_the_schedule() -> None:
    text = '[pipeline]\nschedule = "kfkb"\n'
    lanes = [layout_of(loads(text, [f"pipeline.options.group={k}"]), 2) for k in (1, 4)]
    assert lanes[0].schedule != lanes[1].schedule
    assert "has no option 'groop'" in refusal("pipeline.options.groop=1")


def test_a_schedule_that_has_no_slices_refuses_them() -> None:
    with pytest.raises(PenstockError, match="does not cut sequences into slices"):
        layout_of(short("pipeline.slices=2"), 2)


@pytest.mark.long
@each("name", list(registry()))
def test_what_a_schedule_refuses_is_told_in_the_keys_of_a_configuration(name: str) -> None:
    """Whoever wrote a file gave no -k and would look for it in vain."""
    base = [f"pipeline.schedule={name}", "batch.length=64"]
    sizes = itertools.product((1, 3), (1, 5), (0, 3), (1, 3))
    refused: list[str] = []
    for devices, microbatches, chunks, slices in sizes:
        changes = (
            f"batch.microbatches={microbatches}",
            f"pipeline.chunks={chunks}",
            f"pipeline.slices={slices}",
        )
        try:
            layout_of(loads(SLICED, [*base, *changes]), devices)
        except PenstockError as error:
            refused.append(str(error))
    assert refused
    assert not [text for text in refused if re.search(r"(?<!\w)-[pmvko]\b", text)]


def test_slices_beside_lengths_of_their_own_are_refused_by_their_key() -> None:
    with pytest.raises(PenstockError) as caught:
        layout_of(loads(SLICED, ["pipeline.schedule=chunkflow", "pipeline.slices=2"]), 2)
    assert "takes sequences of any lengths" in caught.value.message
    assert "but pipeline.slices 2 was given" in caught.value.message


FILE = """\
name: mine
devices: 2
stages: 2
slices: 1 x 2
0 compute: 0F0 0F1 0B0 0B1
1 compute: 1F0 1B0 1F1 1B1
"""


def test_a_file_gives_its_own_schedule(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(FILE)
    settings = loads(f'[pipeline]\nschedule = "{path}"\n[batch]\nmicrobatches = 2\n')
    assert layout_of(settings, 2).schedule.name == "mine"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["pipeline.devices=4", "batch.microbatches=2"], "has 2 devices, but the run has 4"),
        (["batch.microbatches=3"], "has 2 microbatches, but the run has 3"),
        (["batch.microbatches=2", "pipeline.slices=2"], "has 1 slices, but the run has 2"),
        (["batch.microbatches=2", "pipeline.chunks=2"], "has 2 stages, but the run has 4"),
        (["batch.microbatches=2", "pipeline.options.a=1"], "pipeline.options are given"),
    ],
)
def test_a_file_of_another_size_is_refused_with_both_sizes(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(FILE)
    settings = loads(f'[pipeline]\nschedule = "{path}"\n', overrides)
    with pytest.raises(PenstockError, match=message):
        layout_of(settings, settings.pipeline.devices or 2)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [("gpip", "no schedule is called 'gpip'"), ("./gone.txt", "cannot read 'gone.txt'")],
)
def test_a_schedule_that_is_not_there_is_refused(schedule: str, message: str) -> None:
    assert message in refusal(f"pipeline.schedule={schedule}", "pipeline.slices=1")


def test_a_damaged_file_is_refused_with_its_name_and_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("devices: 2\nnothing\n")
    assert refusal(f"pipeline.schedule={path}").startswith(f"{path}, line 2, column 1:")


def test_activations_are_in_the_dtype_of_the_run() -> None:
    for dtype, size in (("float64", 8), ("float32", 4), ("bfloat16", 2)):
        assert architecture(short(f"run.dtype={dtype}")).element_bytes == size


def test_a_hugging_face_folder_has_the_numbers(tmp_path: Path) -> None:
    stated = {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 256,
    }
    (tmp_path / "config.json").write_text(json.dumps(stated))
    config = architecture(short(f"model.huggingface={tmp_path}"))
    assert (config.layers, config.heads, config.kv_heads, config.head_size) == (3, 4, 2, 16)


@pytest.mark.parametrize("content", [None, "[]", "{", '{"model_type": "gpt9"}'])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(PenstockError):
        architecture(short(f"model.huggingface={tmp_path}"))


def test_a_sequence_may_be_longer_than_the_window_of_its_model() -> None:
    setup = sliced("model.preset=tiny", "model.window=32")
    assert setup.model.window == 32
    assert sum(setup.lengths[0]) > 32


def test_layers_cut_at_their_attention_are_as_many_as_the_model_has() -> None:
    apart = ("pipeline.schedule=helixpipe", "pipeline.slices=1", "batch.microbatches=4")
    setup = sliced("model.preset=tiny", *apart)
    assert setup.layers == (0, 1) * 4 + (0,)
    assert setup.schedule.shape.to_attention == "heads"
    assert "which does not fit a model of 4 layers" in refusal(
        "model.preset=tiny", *apart, "pipeline.chunks=1"
    )


def test_what_is_recomputed_without_attention() -> None:
    apart = ("pipeline.schedule=helixpipe", "pipeline.slices=1", "batch.microbatches=4")
    again = ("model.preset=tiny", *apart, "pipeline.recompute=without-attention")
    for more, stages in ((), range(0, 9, 2)), (("pipeline.options.send=weights",), range(9)):
        setup = sliced(*again, *more)
        assert {op.stage for op in setup.schedule.table.ops() if op.kind == "R"} == {*stages}
    assert "has no stages of attention alone" in refusal("pipeline.recompute=without-attention")


def test_the_example_is_cut_by_work_over_four_devices() -> None:
    layout = layout_of(load(EXAMPLE), 4)
    assert layout.layers == (1, 1, 1, 1)
    assert layout.lengths[0][0] > layout.lengths[0][-1]
    assert layout.model.head_size * layout.model.heads == layout.model.hidden
    assert layout.model.vocabulary == MODELS["tiny"].vocabulary == 256


def test_what_the_report_compares_is_settled_before_the_run() -> None:
    settings = loads(SLICED, ['log.compare=["1f1b", "gpipe"]'])
    names = [schedule.name for schedule in compared_schedules(settings, 2)]
    assert names == ["1f1b", "gpipe"]
    assert "no schedule is called 'f1b'" in refusal("log.compare=['f1b']")
    assert "m >= 2p" in refusal("log.compare=['dualpipev']", "batch.microbatches=3")


def test_the_example_with_cells_is_as_its_page_shows_it() -> None:
    settings = load(CELLS)
    assert settings.run.directory == "runs/cells"
    setup = layout_of(settings, 8)
    devices, grid = setup.schedule.shape.devices, Grid(device=2, ulysses=2, tensor=2)
    assert (devices, setup.mesh.ranks(devices)) == (2, 8)
    assert setup.mesh.cell == CellShape(tensor=2, ulysses=2)
    assert settings.mesh.shard == "optimizer"
    page = (CELLS.parents[1] / "docs/howto/train.md").read_text()
    assert "\n".join(mesh_picture(grid, 8)) in page
    slices = " + ".join(map(str, setup.lengths[0]))
    numbers = f"2 x 2 layers, slices of {slices} tokens, {setup.model.parameters:,} parameters"
    assert f"\nseq1f1b: 2 devices of 4 ranks each, {numbers}\n" in page


def test_a_decoder_without_a_record_is_told_where_it_runs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    with pytest.raises(PenstockError, match="gpt_neox") as refused:
        architecture(short(f"model.huggingface={tmp_path}"))
    assert "penstock.run.decoder_stages" in refused.value.hint
