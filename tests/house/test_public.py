"""The public names are those in `__all__`, and they can be had."""

from pathlib import Path

import pytest

from house.conftest import Plant
from house.public import announced, missing, unannounced
from house.source import TORCH_LAYERS, Source, none_of, python_sources

CORE = "src/penstock/core/__init__.py"


def test_public_names_are_those_in_all(house: Path) -> None:
    none_of(unannounced(house))


def test_every_name_in_an_all_can_be_imported(house: Path) -> None:
    modules = [
        source.module
        for source in python_sources(house)
        if announced(source) is not None and source.layer not in TORCH_LAYERS
    ]
    assert [complaint for module in modules for complaint in missing(module)] == []


def test_the_package_says_what_is_public(house: Path) -> None:
    assert announced(Source(house, "__init__.py"))


@pytest.mark.parametrize(
    "code",
    [
        "def extra(): return 1",
        "class extra: x = 1",
        "extra = 1",
        "extra: int = 1",
        "from penstock.core.ops import extra",
        "from penstock.core.ops import parse as extra",
    ],
)
def test_a_public_name_outside_all_is_found(plant: Plant, code: str) -> None:
    root = plant({CORE: f"__all__ = ['Op']\nclass Op: x = 1\n{code}\n"})
    assert unannounced(root) == [
        "src/penstock/core/__init__.py: extra is public, but not in __all__"
    ]


@pytest.mark.parametrize(
    "code",
    [
        "_private = 1",
        "from fractions import Fraction",
        "from penstock.errors import nearest",
        "from penstock.core.ops import parse\n_op = parse('0F0')",
    ],
)
def test_private_and_borrowed_names_are_not_public(plant: Plant, code: str) -> None:
    assert unannounced(plant({CORE: f"__all__ = []\n{code}\n"})) == []


def test_an_unsorted_all_is_found(plant: Plant) -> None:
    root = plant({CORE: "__all__ = ['KINDS', 'Op', 'Shape', 'parse', 'build']\n"})
    assert unannounced(root) == ["src/penstock/core/__init__.py: __all__ is not sorted at parse"]


def test_a_name_that_cannot_be_imported_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hollow.py").write_text("__all__ = ['ghost', 'real']\nreal = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert missing("hollow") == ["hollow.__all__ has ghost, but it cannot be imported"]
