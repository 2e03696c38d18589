"""Changes on the command line: TOML where it is TOML, words where it is not."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loops import each
from penstock.errors import PenstockError, ShapeError
from penstock.train.config.overrides import parse_overrides
from train.samples import short, usual


@each(
    ("text", "value"),
    [
        ("run.steps=20", 20),
        ("run.steps = 20", 20),
        ("run.steps=0x14", 20),
        ("optimizer.learning_rate=1e-2", 0.01),
        ("optimizer.learning_rate=1", 1.0),
        ("run.dtype=float64", "float64"),
        ('run.dtype="float64"', "float64"),
        ("run.directory=runs/a=b", "runs/a=b"),
        ("run.directory=2026-01-01", "2026-01-01"),
        ("run.directory=7", "7"),
        ("run.directory=true", "true"),
        ("run.directory=a\nsteps = 3", "a\nsteps = 3"),
        ("run.directory=1\nsteps = 3", "1\nsteps = 3"),
        ("pipeline.schedule=1f1b", "1f1b"),
        ("log.wandb=", ""),
        ("log.tensorboard=true", True),
        ("pipeline.recompute=all", "all"),
        ("pipeline.recompute=[0, 2]", (0, 2)),
        ("optimizer.betas=[0, 0.5]", (0.0, 0.5)),
        ("pipeline.options={limit = 4}", {"limit": 4}),
        ("pipeline.options.limit=4", {"limit": 4}),
        ("pipeline.options.limit=3/4", {"limit": "3/4"}),
    ],
)
def test_a_value_is_what_its_key_takes(text: str, value: object) -> None:
    settings = short(text)
    section, key = text.partition("=")[0].strip().split(".")[:2]
    found = getattr(getattr(settings, section), key)
    assert (found, type(found)) == (value, type(value))


def test_the_last_change_wins() -> None:
    assert short("run.steps=2", "run.steps=3").run.steps == 3


def test_a_change_of_a_table_keeps_what_it_does_not_name() -> None:
    options = short("pipeline.options={a = 1, b = 2}", "pipeline.options.b=3").pipeline.options
    assert options == {"a": 1, "b": 3}


@pytest.mark.parametrize("text", ["", "steps", "steps=3", ".steps=3", "run.=3", "run..a=3", "=3"])
def test_what_names_no_key_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="names no value of a section"):
        parse_overrides([text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run.steps=many", "--set 'run.steps=many': run.steps is 'many'"),
        ("run.step=3", "--set 'run.step=3': .run. has no key 'step'"),
        ("rnu.steps=3", "--set 'rnu.steps=3': there is no section .rnu."),
        ("run.steps.more=3", "--set 'run.steps.more=3': run.steps is {'more': 3}"),
        ("run.directory=\udcff", "run.directory is '.udcff'"),
    ],
)
def test_a_refused_change_is_quoted(text: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        short(text)


def test_a_key_of_something_that_is_no_table_is_refused() -> None:
    with pytest.raises(ShapeError, match="'steps' is not a table, so it has no key 'more'"):
        short("run.steps=3", "run.steps.more=3")


@usual
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_no_value_crashes_the_reader(letters: str) -> None:
    assert short(f"log.wandb='{letters.replace(chr(39), '')}'").log.wandb is not None
    for key in ("run.steps", "pipeline.cut", "pipeline.options.a", "model.rope_scaling.factor"):
        with suppress(PenstockError):
            short(f"{key}={letters}")


@pytest.mark.parametrize(
    "key", ["run.directory", "checkpoint.export", "checkpoint.resume", "model.huggingface"]
)
def test_a_nul_in_the_name_of_a_folder_is_refused_where_it_stands(key: str) -> None:
    with pytest.raises(ShapeError, match=rf"{key.split('.')[1]} has a NUL character") as caught:
        short(rf'{key}="a\u0000b"')
    assert caught.value.hint == "leave it out"
