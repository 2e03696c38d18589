"""A short command must not wait for packages it does not use."""

import subprocess
import sys
from pathlib import Path

import pytest

from house.conftest import Plant
from house.source import TORCH_LAYERS

pytestmark = pytest.mark.processes

LOAD_ALL = """
import pkgutil, sys
from importlib import import_module

sys.modules.update(dict.fromkeys({without!r}))  # any import of these fails
import penstock

for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not found.name.startswith({spared!r}):
        import_module(found.name)
print(*(name for name in ("numba", "llvmlite", "playwright") if name in sys.modules))
"""


def loaded_at_import(
    source: Path,
    without: tuple[str, ...] = ("torch", "pydantic"),
    spared: tuple[str, ...] = TORCH_LAYERS,
) -> subprocess.CompletedProcess[str]:
    """Load every module but those of some layers without some packages; print the heavy ones."""
    layers = tuple(f"penstock.{layer}" for layer in spared)
    return subprocess.run(
        [sys.executable, "-c", LOAD_ALL.format(without=without, spared=layers)],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_module_loads_without_torch_and_without_the_compiler(house: Path) -> None:
    run = loaded_at_import(house / "src")
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "", "")


@pytest.mark.torch
def test_only_training_needs_pydantic_and_only_kernels_triton(house: Path) -> None:
    run = loaded_at_import(house / "src", ("pydantic", "triton"), ("train.", "model.kernels."))
    assert (run.returncode, run.stderr) == (0, "")


def test_a_module_that_loads_pydantic_fails(plant: Plant) -> None:
    root = plant({"penstock/__init__.py": "", "penstock/core.py": "import pydantic\n"})
    assert "ModuleNotFoundError" in loaded_at_import(root).stderr


def test_a_module_that_loads_torch_fails(plant: Plant) -> None:
    root = plant({"penstock/__init__.py": "", "penstock/core.py": "import torch\n"})
    assert "ModuleNotFoundError" in loaded_at_import(root).stderr


def test_a_module_that_loads_the_compiler_is_named(plant: Plant) -> None:
    root = plant({"penstock/__init__.py": "", "penstock/core.py": "import numba\n"})
    assert "numba" in loaded_at_import(root).stdout.split()


def test_the_torch_layers_may_load_torch(plant: Plant) -> None:
    root = plant({"penstock/__init__.py": "", "penstock/run.py": "import torch\n"})
    assert loaded_at_import(root).returncode == 0
