"""Whatever a file has in it, a configuration is read or refused at once, with the place."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clock import within
from penstock.errors import PenstockError, ShapeError
from penstock.train.config.load import load, loads
from penstock.train.config.save import dump
from penstock.train.config.settings import Settings
from train.config.refusals import refusal
from train.samples import SHORT, usual

EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.toml"


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
