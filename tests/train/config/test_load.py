"""Configurations are read, refused with their place, and written back."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from loops import each
from penstock.arch.blocks import LayerBlock
from penstock.arch.presets import MODELS
from penstock.errors import ShapeError
from penstock.train.config.load import load, loads
from penstock.train.config.save import LOCAL, dump, save, shared_settings, tables
from penstock.train.config.schema import schema
from penstock.train.config.sections import BatchSettings
from penstock.train.config.settings import Settings
from train.config.refusals import refusal
from train.samples import SHORT, all_settings, short, usual

EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.toml"


def test_every_key_but_the_schedule_has_a_default() -> None:
    settings = loads(SHORT)
    assert settings == Settings(pipeline=settings.pipeline)
    assert refusal("") == (
        "line 1, column 1: [pipeline] has no schedule\n"
        "hint: pipeline.schedule is needed: a name from `penstock list`, or the path of a "
        "schedule file."
    )


def test_keys_of_the_file_take_the_place_of_defaults() -> None:
    settings = loads(SHORT + "slices = 2\n[batch]\nlength = 7\n[optimizer]\nlearning_rate = 1\n")
    assert settings.pipeline.slices == 2
    assert settings.batch == BatchSettings(length=7)
    assert (settings.optimizer.learning_rate, type(settings.optimizer.learning_rate)) == (
        1.0,
        float,
    )


BLOCKS = """
[model]
preset = "tiny"
[[model.blocks]]
ffn = 64
[[model.blocks]]
ffn = 96
attention = false
fused = [64, 32]
"""


def test_blocks_of_layers_are_a_list_of_tables() -> None:
    settings = loads(SHORT + BLOCKS)
    model = settings.model.config
    assert model is not None
    assert model.blocks == (LayerBlock(64), LayerBlock(96, attention=False, fused=(64, 32)))
    assert loads(dump(settings)) == settings
    wrong = refusal(SHORT + BLOCKS.replace("32]", "33]"))
    assert "MLPs of 64, 33 columns (97 together) are fused to one of 96" in wrong


def test_the_run_is_called_as_the_file_unless_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SHORT)
    assert load(path).run.directory == "runs/mine"
    assert load(path, ["run.directory=there"]).run.directory == "there"


@each(
    ("text", "message"),
    [
        ('[pipline]\nschedule = "gpipe"\n', "line 1, column 2: there is no section [pipline]"),
        (f"{SHORT}slize = 2\n", "line 3, column 1: [pipeline] has no key 'slize'"),
        (f'{SHORT}slices = "2"\n', "line 3, column 1: pipeline.slices is '2'"),
        (f"{SHORT}slices = 2.0\n", "line 3, column 1: pipeline.slices is 2.0"),
        (f"{SHORT}slices = true\n", "line 3, column 1: pipeline.slices is True"),
        (f"{SHORT}\n[batch]\n  length = 0\n", "line 5, column 3: batch.length is 0"),
        (
            f"{SHORT}[optimizer]\nlearning_rate = nan\n",
            "line 4, column 1: optimizer.learning_rate is nan",
        ),
        (
            f"{SHORT}[optimizer]\nlearning_rate = inf\n",
            "line 4, column 1: optimizer.learning_rate is inf",
        ),
        (f"{SHORT}[optimizer]\nbetas = [0.9]\n", "line 4, column 1: optimizer.betas is [0.9]"),
        (f"{SHORT}cut = 'odd'\n", "line 3, column 1: pipeline.cut is 'odd'"),
        (f"run = 3\n{SHORT}", "line 1, column 1: run is not a table"),
        (f"{SHORT}slices = 2\ncut = [\n  3,\n]\n", "line 4, column 1: [pipeline] cut gives 1"),
        (f"{SHORT}slices = 5\n[batch]\nlength = 4\n", "line 3, column 1: pipeline.slices is 5"),
        (f"{SHORT}[data]\nsource = 'tape'\n", "line 4, column 1: data.source is 'tape'"),
        (f"{SHORT}[model]\nlayers = 2\n", "line 3, column 2: [model] the model has no hidden"),
        (f"{SHORT}[pipeline]\n", "line 3, column 10: this is not TOML: Cannot declare"),
        (f"{SHORT}slices = \n", "line 3, column 10: this is not TOML: Invalid value"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (f"{SHORT}slize = 2\n", "did you mean 'slices'?"),
        (f"{SHORT}[bach]\n", "did you mean 'batch'?"),
        (f"{SHORT}slices = 'two'\n", "give an integer of 1 or more"),
        (f"{SHORT}cut = 3\n", 'give "even" or "equal-flops" or a list, each item an integer'),
        (f"{SHORT}[optimizer]\nminimum_factor = 2\n", "give a number of 0 or more and at most 1"),
        (f"{SHORT}[run]\ndtype = 'f32'\n", 'give "float32", "float64" or "bfloat16"'),
    ],
)
def test_a_refusal_says_what_to_write(text: str, hint: str) -> None:
    assert f"\nhint: {hint}" in refusal(text)


def test_a_key_that_has_moved_is_refused_with_its_new_place() -> None:
    said = "[pipeline] has no key 'replicas'\nhint: it has moved to mesh.replicas"
    assert refusal(f"{SHORT}slices = 2\n  replicas = 2\n") == f"line 4, column 3: {said}"
    assert refusal(SHORT, "pipeline.replicas=2") == f"--set 'pipeline.replicas=2': {said}"
    assert refusal(f"{SHORT}replica = 2\n").startswith("line 3, column 1: [pipeline] has no key")
    assert "moved" not in refusal(f"{SHORT}replica = 2\n")


@each(
    ("keys", "message"),
    [
        (
            "sequence = 4\nring = 3\n",
            "line 5, column 1: [mesh] ring is 3, which does not divide sequence, which is 4\n"
            "hint: give a ring of 2 or 4",
        ),
        ("tensor = 0\n", "line 4, column 1: mesh.tensor is 0\nhint: give an integer of 1 or more"),
        (
            "tensor = 2097152\n",
            "line 4, column 1: [mesh] tensor is 2097152\nhint: give at most 1,048,576",
        ),
        (
            'norms = "scatered"\n',
            "line 4, column 1: mesh.norms is 'scatered'\n"
            'hint: give "scattered" or "replicated"; did you mean \'scattered\'?',
        ),
        (
            'tensor = 2\norder = ["device", "tensor", "sequence"]\n',
            "line 5, column 1: [mesh] order is device, tensor, sequence\n"
            "hint: name each of replica, device, sequence, tensor once",
        ),
    ],
)
def test_a_mesh_that_cannot_be_is_refused_where_it_is_written(keys: str, message: str) -> None:
    assert refusal(f"{SHORT}[mesh]\n{keys}") == message


def test_a_file_is_named_before_the_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{SHORT}[run]\nstep = 1\n")
    with pytest.raises(
        ShapeError, match=r"mine\.toml, line 4, column 1: \[run\] has no key 'step'"
    ):
        load(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * 1_000_001])
def test_what_is_no_text_of_a_sensible_size_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(ShapeError, match=r"mine\.toml"):
        load(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="No such file"):
        load(tmp_path / "gone.toml")


def test_a_long_value_is_not_repeated_whole() -> None:
    assert len(refusal(f"{SHORT}slices = '{'x' * 10_000}'\n")) < 250


@each(
    ("overrides", "message"),
    [
        (
            ["optimizer.warmup_steps=1001"],
            "--set 'optimizer.warmup_steps=1001': optimizer.warmup_steps 1001 and",
        ),
        (
            ["optimizer.schedule=wsd"],
            "--set 'optimizer.schedule=wsd': [optimizer] decay_steps is 0",
        ),
        (
            ["optimizer.decay_steps=5"],
            "--set 'optimizer.decay_steps=5': [optimizer] decay_steps is",
        ),
        (["evaluation.every=5"], "--set 'evaluation.every=5': evaluation.every is 5, but no data"),
        (["pipeline.keep_slices=1"], "--set 'pipeline.keep_slices=1': [pipeline] keep_slices is 1"),
        (
            ["pipeline.layers=[1, 2]"],
            "--set 'pipeline.layers=[1, 2]': pipeline.layers adds up to 3",
        ),
        (["pipeline.schedule="], "--set 'pipeline.schedule=': [pipeline] schedule is empty"),
        (["watch.heartbeat=31"], "--set 'watch.heartbeat=31': [watch] heartbeat is 31.0 s and"),
        (["run.directory="], "--set 'run.directory=': [run] directory is ''"),
        (["checkpoint.resume="], "--set 'checkpoint.resume=': [checkpoint] resume is empty"),
        (["pipeline.slices=2", "pipeline.cut=[9, 9]"], "--set 'pipeline.cut=[9, 9]': pipeline.cut"),
        (
            ["model.huggingface=here", "model.preset=tiny"],
            "--set 'model.huggingface=here': [model] huggingface is given, and so is preset",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(overrides: list[str], message: str) -> None:
    assert refusal(SHORT, *overrides).startswith(message)


def test_a_preset_lends_its_numbers_and_given_ones_replace_them() -> None:
    settings = short("model.preset=tiny", "model.layers=6", "model.window=99")
    assert settings.model.config == replace(MODELS["tiny"], layers=6, window=99)


def test_a_nested_table_reads_as_the_record_it_stands_for() -> None:
    scaling = "model.rope_scaling={kind='linear', factor=4}"
    (config,) = {short("model.preset=tiny", scaling).model.config}
    assert config is not None
    assert config.rope_scaling is not None
    assert (config.rope_scaling.kind, config.rope_scaling.factor) == ("linear", 4.0)
    assert refusal(SHORT, "model.preset=tiny", "model.rope_scaling.kind=linear") == (
        "--set 'model.rope_scaling.kind=linear': [model.rope_scaling] has no factor\n"
        "hint: model.rope_scaling.factor is needed: how many times longer the context became."
    )
    assert "model.rope_scaling: no rope scaling is called 'odd'" in refusal(
        SHORT, "model.preset=tiny", "model.rope_scaling={kind='odd', factor=4}"
    )


@usual
@given(all_settings())
def test_what_is_written_reads_back_the_same(settings: Settings) -> None:
    assert loads(dump(settings)) == settings


def test_the_resolved_configuration_is_saved_with_the_run(tmp_path: Path) -> None:
    settings = short(f"run.directory={tmp_path / 'deep' / 'run'}", "run.steps=7")
    path = save(settings)
    assert path == tmp_path / "deep/run/config.toml"
    assert load(path) == settings


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ShapeError, match=r"cannot make .*Not a directory"):
        save(short(f"run.directory={tmp_path / 'file' / 'run'}"))


def test_the_written_form_has_every_key() -> None:
    written = tables(short())
    for name, section in schema()["properties"].items():
        assert name == "model" or written[name].keys() == section["properties"].keys()


def test_what_is_agreed_on_differs_with_every_key_that_must_agree() -> None:
    changes = {
        "run.steps=7",
        "run.dtype=float64",
        "model.preset=llama-7b",
        "batch.rows=2",
        "pipeline.schedule=other",
        "pipeline.options.a=1",
        "optimizer.learning_rate=0.5",
        "data.tokenizer=elsewhere",
        "checkpoint.resume=never",
    }
    files = {shared_settings(short(change)) for change in changes} | {shared_settings(short())}
    assert len(files) == len(changes) + 1


def test_what_is_agreed_on_is_the_same_whatever_one_machine_decides() -> None:
    local = ("run.threads=7", "log.tensorboard=true", "log.wandb=mine")
    assert {tuple(change.split("=")[0].split(".")) for change in local} == set(LOCAL)
    assert shared_settings(short(*local)) == shared_settings(short())


def test_the_example_is_the_quickstart() -> None:
    settings = load(EXAMPLE)
    assert settings.run.directory == "runs/quickstart"
    assert (settings.run.steps, settings.optimizer.learning_rate) == (120, 0.01)
    assert (settings.pipeline.devices, settings.pipeline.slices) == (4, 4)
