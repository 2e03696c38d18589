"""Imports go only downwards, and nothing but the torch layers knows torch."""

import sys
from pathlib import Path

import pytest

from house.conftest import Plant
from house.imports import ALLOWED, cycles, rings, room_of, wrong_directions, wrong_packages
from house.source import none_of

STANDARD = frozenset(sys.stdlib_module_names)


def test_imports_go_only_downwards(house: Path) -> None:
    none_of(wrong_directions(house))


def test_the_rooms_stand_in_an_order() -> None:
    none_of(rings(ALLOWED))


def test_rooms_that_may_import_each_other_are_printed_as_a_ring() -> None:
    (complaint,) = rings({**ALLOWED, "run.comm": ("run.launch",), "run.launch": ("run.comm.mesh",)})
    assert complaint.startswith("rooms in a ring: run.")


def test_a_file_belongs_to_the_room_with_the_longest_name() -> None:
    assert room_of("bench.measure.gpu") == "bench.measure"
    assert room_of("bench.run") == "bench"
    assert room_of("run.execute.handlers") == "run.execute"
    assert room_of("benchmark") == ""


@pytest.mark.parametrize(
    ("room", "target"),
    [
        ("run/comm", "run.launch"),
        ("run/watchdog", "run.launch"),
        ("run/program", "run.execute"),
        ("model/attention", "model.stages"),
        ("train/report", "train.loop"),
        ("bench/measure", "train.loop"),
    ],
)
def test_an_upward_import_between_torch_rooms_is_refused(
    plant: Plant, room: str, target: str
) -> None:
    root = plant({f"src/penstock/{room}/x.py": f"import penstock.{target}.y\n"})
    (complaint,) = wrong_directions(root)
    assert complaint.startswith(f"src/penstock/{room}/x.py:1: imports penstock.{target}.y, but ")


def test_no_module_needs_itself(house: Path) -> None:
    none_of(cycles(house))


def test_each_layer_imports_only_its_packages(house: Path) -> None:
    none_of(wrong_packages(house, STANDARD))


@pytest.mark.parametrize(
    "statement",
    [
        "from penstock.sim.engine import simulate",
        "import penstock.sim",
        "from penstock import sim",
        "def late() -> None:\n    from penstock.sim import simulate",
        "import_module('penstock.sim')",
    ],
)
def test_an_upward_import_is_named_with_its_line_and_the_allowed_layers(
    plant: Plant, statement: str
) -> None:
    root = plant(
        {"src/penstock/sim/__init__.py": "", "src/penstock/core/ops.py": f"\n{statement}\n"}
    )
    (complaint,) = wrong_directions(root)
    line = 2 + statement.count("\n")
    assert complaint.startswith(f"src/penstock/core/ops.py:{line}: imports penstock.sim")
    assert complaint.endswith("but core may import core, errors, terminal, display")


def test_a_relative_import_is_refused(plant: Plant) -> None:
    root = plant({"src/penstock/core/ops.py": "from .shape import Shape\n"})
    assert wrong_directions(root) == [
        "src/penstock/core/ops.py:1: relative import of .shape; write it in full"
    ]


def test_a_layer_outside_the_table_is_refused(plant: Plant) -> None:
    root = plant({"src/penstock/utils/text.py": "from penstock.core.ops import Op\n"})
    assert wrong_directions(root) == [
        "src/penstock/utils/text.py:1: layer utils is not in the table of tests/house/imports.py"
    ]


def test_pictures_may_take_the_timeline_but_not_the_simulator(plant: Plant) -> None:
    root = plant(
        {
            "src/penstock/draw/svg/picture.py": "from penstock.sim.timeline import Timeline\n"
            "from penstock.sim.engine import simulate\n"
        }
    )
    (complaint,) = wrong_directions(root)
    assert complaint.startswith("src/penstock/draw/svg/picture.py:2: imports penstock.sim.engine")


@pytest.mark.parametrize(
    "statement", ["import torch", "from torch.distributed import pipelining", "__import__('torch')"]
)
def test_torch_outside_its_layers_is_refused(plant: Plant, statement: str) -> None:
    root = plant(
        {"src/penstock/sim/engine.py": statement, "src/penstock/run/execute/executor.py": statement}
    )
    (complaint,) = wrong_packages(root, STANDARD)
    assert complaint.startswith("src/penstock/sim/engine.py:1: imports torch")
    assert complaint.endswith(
        "but model, run, data, train, verify, fusion, bench.measure, profiling.measure may do so"
    )


def test_a_package_that_is_no_dependency_is_refused(plant: Plant) -> None:
    root = plant({"src/penstock/core/ops.py": "import pandas\nimport numpy, re\n"})
    assert wrong_packages(root, STANDARD) == [
        "src/penstock/core/ops.py:1: imports pandas, but no layer may do so"
    ]


def test_a_cycle_is_printed_as_a_ring(plant: Plant) -> None:
    root = plant(
        {
            "src/penstock/core/ops.py": "from penstock.core.shape import Shape\n",
            "src/penstock/core/shape.py": "from penstock.core import ops\n",
        }
    )
    (complaint,) = cycles(root)
    assert complaint.startswith("import cycle: penstock.core.")


def test_an_import_inside_a_function_closes_no_cycle(plant: Plant) -> None:
    root = plant(
        {
            "src/penstock/core/ops.py": "from penstock.core.shape import Shape\n",
            "src/penstock/core/shape.py": "def late():\n    from penstock.core import ops\n",
        }
    )
    assert cycles(root) == []
