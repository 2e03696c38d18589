"""Configurations are read, refused with their place, and written back."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clock import within
from loops import each
from penstock.arch.blocks import LayerBlock
from penstock.arch.presets import MODELS
from penstock.errors import PenstockError, ShapeError
from penstock.train.config.load import load, loads
from penstock.train.config.save import LOCAL, dump, save, shared_settings, tables
from penstock.train.config.schema import schema
from penstock.train.config.sections import BatchSettings
from penstock.train.config.settings import Settings
from train.samples import SHORT, all_settings, short, usual

EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.toml"


def refusal(text: str, *overrides: str) -> str:
    """What is said against a configuration."""
    with pytest.raises(PenstockError) as caught:
        loads(text, overrides)
    return str(caught.value)


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


def accepted_or_refused(text: str) -> None:
    """Whatever is in a file, it makes settings or one of our errors."""
    with suppress(PenstockError):
        assert isinstance(loads(text), Settings)


@usual
@given(st.text())
def test_no_text_crashes_the_reader(text: str) -> None:
    accepted_or_refused(text)


@usual
@given(st.data())
def test_no_damage_to_a_file_crashes_the_reader(data: st.DataObject) -> None:
    text = EXAMPLE.read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    junk = data.draw(st.text(max_size=5) | st.sampled_from(["=", "[", "]", "\n", '"', "1e999"]))
    accepted_or_refused(text[:start] + junk + text[end:])


def test_deep_nesting_is_refused() -> None:
    assert "nested too deeply" in refusal(f"{SHORT}cut = {'[' * 20_000}\n")


def test_several_mistakes_are_told_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[run]\nstepz = 3\n{SHORT}cut = 3\n[optimizer]\nbetas = [0.9]\n[bach]\n")
    with pytest.raises(ShapeError) as caught:
        load(path, ["run.seed=-1"])
    assert str(caught.value).splitlines() == [
        f"{path} has 5 mistakes",
        "  --set 'run.seed=-1': run.seed is -1; give an integer of 0 or more",
        "  line 2, column 1: [run] has no key 'stepz'; did you mean 'steps'?",
        "  line 5, column 1: pipeline.cut is 3; "
        'give "even" or "equal-flops" or a list, each item an integer of 1 or more or a string '
        'such as "64K"',
        "  line 7, column 1: optimizer.betas is [0.9]; "
        "give a list of 2, each item a number of 0 or more and below 1",
        "  line 8, column 2: there is no section [bach]; did you mean 'batch'?",
    ]


def test_of_very_many_mistakes_the_first_are_told() -> None:
    said = refusal(SHORT + "[run]\n" + "".join(f"key{n} = 1\n" for n in range(99))).splitlines()
    assert said[0] == "the configuration has 99 mistakes"
    assert said[10].startswith("  line 13, column 1: [run] has no key 'key9'")
    assert said[11:] == ["  and 89 more"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("optimizer.rate", "learning_rate"),
        ("optimizer.warmup", "warmup_steps"),
        ("optimizer.decay", "decay_steps"),
        ("optimizer.minimum", "minimum_factor"),
        ("watch.beat", "heartbeat"),
    ],
)
def test_a_key_by_its_former_name_is_refused_with_its_name(old: str, new: str) -> None:
    assert refusal(SHORT, f"{old}=1").endswith(f"\nhint: did you mean {new!r}?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rope_scaling = {kind = 'yarn', factr = 2}", "column 32: [model.rope_scaling] has no key"),
        ("rope_scaling = {kind = 'yarn', factor = '2'}", "column 32: model.rope_scaling.factor is"),
        ("rope_scaling = {kind = 'yarn'}", "column 1: [model.rope_scaling] has no factor"),
        ("rope_scaling.kind = 'odd'\nrope_scaling.factor = 2", "column 1: model.rope_scaling: no"),
        ("rope_scaling = 3", "column 1: model.rope_scaling is 3"),
    ],
)
def test_a_mistake_in_a_nested_table_has_the_place_of_its_key(text: str, message: str) -> None:
    assert refusal(f"{SHORT}[model]\npreset = 'tiny'\n{text}\n").startswith(f"line 5, {message}")


def test_a_word_that_is_no_choice_is_refused_with_the_nearest() -> None:
    assert refusal(SHORT, "data.source=txt").endswith(
        'hint: give "text", "jsonl", "records", "tokens" or "stdlib"; did you mean \'text\'?'
    )


def test_a_wrong_value_far_down_a_large_file_is_found_at_once() -> None:
    options = "".join(f"option_{n} = '{'x' * 60}' # {n}\n" for n in range(8_500))
    text = f"{SHORT}[pipeline.options]\n{options}last = true\n"
    assert len(text) > 700_000
    with within(1):
        said = refusal(text)
    assert said.startswith("line 8504, column 1: pipeline.options.last is True")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".".join(["a"] * 300_000) + " = 1\n", "line 1, column 1: tables or lists are nested"),
        ("x = 1\n[" + ".".join(["a"] * 9_000) + "]\n", "line 2, column 1: tables or lists are"),
        ("x = {" + ".".join(["a"] * 9_000) + " = 1}\n", "line 1, column 1: tables or lists are"),
        ("a = " + "[" * 40 + "]" * 40, "line 1, column 1: tables or lists are nested"),
        ("[data]\npaths = [" + "1," * 60_000 + "]\n", "line 1, column 1: there are more than 50,0"),
    ],
    ids=["key", "table", "inline", "lists", "values"],
)
def test_what_would_take_minutes_to_read_is_refused_at_once(text: str, message: str) -> None:
    with within(1):
        said = refusal(text)
    assert said.startswith(message)


def test_tokens_and_bytes_may_have_units() -> None:
    text = f"""{SHORT}slices = 2
cut = ["32K", 32768]
[batch]
length = "64K"
[data]
limit_bytes = "1.5GB"
[model]
preset = "tiny"
max_positions = "1M"
"""
    settings = loads(text)
    assert (settings.batch.length, settings.pipeline.cut) == (65536, (32768, 32768))
    assert (settings.data.limit_bytes, settings.model.max_positions) == (1_500_000_000, 2**20)
    assert loads(SHORT, ["batch.length=64K"]).batch.length == 65536
    assert loads(dump(settings)) == settings


@pytest.mark.parametrize("value", ["64k", "64KB", "0.0001K", "K"])
def test_a_text_that_says_no_number_of_tokens_is_refused_as_one(value: str) -> None:
    said = refusal(SHORT, f"batch.length={value}")
    assert said.startswith(f"--set 'batch.length={value}': batch.length is '{value}'")
    assert said.endswith('give an integer of 1 or more or a string such as "64K"')


def test_no_other_key_takes_a_number_in_quotes() -> None:
    assert "batch.rows is '2K'" in refusal(SHORT, "batch.rows=2K")


def test_dots_in_texts_and_comments_are_no_names() -> None:
    text = f'[run]\ndirectory = "{"../" * 40}x" # {"." * 99}\n{SHORT}'
    assert loads(text).run.directory.endswith("/x")


def test_a_message_that_quotes_a_section_which_is_no_table_is_no_crash() -> None:
    tokens = "[data]\nsource = 'tokens'\npaths = ['a']\nend_token = 'log.x'\n"
    said = refusal(f"log = 3\n{SHORT}{tokens}").splitlines()
    assert said[1] == "  line 1, column 1: log is not a table; write [log] above its keys"
    assert said[2].startswith("  line 7, column 1: data.end_token is 'log.x', but data.source is")
