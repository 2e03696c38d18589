"""No public name stands for two things, and no function is called by a bare participle."""

from pathlib import Path

import pytest

from house import names
from house.conftest import Plant
from house.source import none_of

PER_MODULE = {
    "CASES": "part of a schedule's record",
    "CLAIMS": "part of a schedule's record",
    "GROUP": "an option of a schedule",
    "LAYERS": "an option of a schedule",
    "LIMIT": "an option of a schedule",
    "OPTIONS": "part of a schedule's record",
    "PAPER": "part of a schedule's record",
    "SOURCE": "part of a schedule's record",
    "dumps": "a text in one of the file formats, as in the standard library",
    "load": "a file with a schedule, or a configuration, as in the standard library",
    "loads": "a text in one of the file formats or a configuration, as in the standard library",
    "register": "how a command joins the command line, one per verb",
    "render": "how a picture is made, one per format",
    "save": "a file with a schedule, tensors or a configuration, beside load",
}
"""Names that several modules define on purpose, and why."""

WORDS = {
    "interlaced": "the name of a schedule, as its paper has it",
    "interleaved": "the name of a schedule, as its paper has it",
}
"""Single words in -ed or -ing that are no participles, or cannot be others."""

OPS, SHAPE = "src/penstock/core/ops.py", "src/penstock/core/shape.py"


def test_a_public_name_is_defined_once(house: Path) -> None:
    none_of(names.repeated(house, PER_MODULE))


def test_functions_are_verbs_or_nouns(house: Path) -> None:
    none_of(names.participles(house, WORDS))


def test_what_was_reviewed_is_still_there(house: Path) -> None:
    none_of(names.unneeded(house, PER_MODULE, WORDS))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def look(): return 1", "def look(): return 2"),
        ("class Look: x = 1", "Look = tuple[int, int]"),
        ("MOST = 8", "MOST: int = 9"),
    ],
)
def test_a_name_that_two_modules_define_is_found(plant: Plant, one: str, other: str) -> None:
    root = plant({OPS: f"\n{one}\n", SHAPE: f"{other}\n"})
    (complaint,) = names.repeated(root, ())
    assert "is defined in src/penstock/core/ops.py:2, src/penstock/core/shape.py:1:" in complaint
    assert names.repeated(root, [complaint.split()[0]]) == []


@pytest.mark.parametrize(
    "other",
    [
        "from penstock.core.ops import look",
        "def _look(): return 1",
        "class A:\n    def look(self): return 1",
        "def f():\n    look = 1\n    return look",
    ],
)
def test_an_import_and_a_name_inside_are_no_second_definition(plant: Plant, other: str) -> None:
    root = plant({OPS: "def look(): return 1\n", SHAPE: f"{other}\n"})
    assert names.repeated(root, ()) == []


def test_a_type_variable_is_no_definition(plant: Plant) -> None:
    root = plant({OPS: 'Item = TypeVar("Item")\n', SHAPE: 'Item = TypeVar("Item")\n'})
    assert names.repeated(root, ()) == []


@pytest.mark.parametrize("name", ["gathered", "padding"])
def test_a_function_called_by_a_participle_is_found(plant: Plant, name: str) -> None:
    root = plant({OPS: f"\ndef {name}(): return 1\n"})
    (complaint,) = names.participles(root, ())
    assert complaint.startswith(f"src/penstock/core/ops.py:2: {name} is a bare participle")
    assert names.participles(root, [name]) == []


@pytest.mark.parametrize("name", ["gather", "gathered_bytes", "_gathered", "resting_stages"])
def test_a_verb_a_noun_and_a_private_function_are_fine(plant: Plant, name: str) -> None:
    assert names.participles(plant({OPS: f"def {name}(): return 1\n"}), ()) == []


def test_a_method_may_tell_a_state(plant: Plant) -> None:
    root = plant({OPS: "class A:\n    def packed(self): return 1\n"})
    assert names.participles(root, ()) == []


def test_a_reviewed_name_that_is_gone_is_found(plant: Plant) -> None:
    root = plant({OPS: "def main(): return 1\n"})
    assert names.unneeded(root, ["main"], ["padding"]) == [
        "main is reviewed, but not repeated",
        "padding is reviewed, but names no function",
    ]
