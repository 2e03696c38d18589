"""Files and functions stay within the budgets of the house."""

from collections.abc import Callable
from pathlib import Path

import pytest

from house import sizes
from house.conftest import Plant
from house.source import none_of

OPS = "src/penstock/core/ops.py"


@pytest.mark.parametrize(
    "rule",
    [
        sizes.long_files,
        sizes.long_functions,
        sizes.wide_functions,
        sizes.typical_sizes,
        sizes.mode_switches,
    ],
)
def test_the_house_keeps_its_budget(house: Path, rule: Callable[[Path], list[str]]) -> None:
    none_of(rule(house))


def function(name: str, *, body_lines: int = 1, signature: str = "") -> str:
    return f"def {name}({signature}):\n" + "    x = 1\n" * body_lines


def test_a_file_of_301_lines_is_too_long(plant: Plant) -> None:
    root = plant({OPS: "\n" * 301, "src/penstock/core/shape.py": "\n" * 300})
    assert sizes.long_files(root) == ["src/penstock/core/ops.py: 301 lines, budget 300"]


def test_a_function_of_61_lines_is_too_long(plant: Plant) -> None:
    root = plant({OPS: function("f", body_lines=60) + function("g", body_lines=59)})
    assert sizes.long_functions(root) == ["src/penstock/core/ops.py:1: f has 61 lines, budget 60"]


def test_eight_parameters_are_too_many_and_self_is_none(plant: Plant) -> None:
    eight = "a, b, c, d, *e, f, g, h"
    root = plant(
        {OPS: function("f", signature=eight) + function("g", signature="self, " + eight[:-3])}
    )
    assert sizes.wide_functions(root) == [
        "src/penstock/core/ops.py:1: f has 8 parameters, budget 7"
    ]


def test_columns_of_a_kernel_are_not_counted(plant: Plant) -> None:
    code = "@kernel\n" + function("f", signature="a, b, c, d, e, f, g, h")
    assert sizes.wide_functions(plant({OPS: code})) == []


@pytest.mark.parametrize(
    "code",
    [
        "@app.command()\n" + function("f", signature="a, b, c, d, e, f, g, h=False"),
        function("f", signature="a, b, c, d, e, f, g, h=False") + "app.command('x')(f)\n",
    ],
)
def test_flags_of_a_command_are_not_counted(plant: Plant, code: str) -> None:
    root = plant({OPS: code})
    assert sizes.wide_functions(root) == []
    assert sizes.mode_switches(root) == []


def test_the_typical_function_must_be_short(plant: Plant) -> None:
    root = plant({OPS: "".join(function(f"f{i}", body_lines=39) for i in range(3))})
    assert sizes.typical_sizes(root) == [
        "median function: 40 lines, budget 8",
        "nine tenths of the functions: 40 lines, budget 35",
    ]


def test_the_typical_file_must_be_short(plant: Plant) -> None:
    text = function("f") + "\n" * 119
    root = plant({OPS: text, "src/penstock/core/shape.py": text})
    assert sizes.typical_sizes(root) == ["median file: 121 lines, budget 120"]


def test_three_boolean_defaults_in_a_hundred_functions_are_too_many(plant: Plant) -> None:
    plain = "".join(function(f"f{i}") for i in range(97))
    modes = [function(f"mode{i}", signature="a=None, *, b=True") for i in range(3)]
    assert sizes.mode_switches(plant({OPS: plain + modes[0] + modes[1] + function("f")})) == []
    complaints = sizes.mode_switches(plant({OPS: plain + "".join(modes)}))
    assert len(complaints) == 3
    assert complaints[0].endswith("mode0 has 1 boolean default(s)")


def test_zero_and_one_are_numbers_and_not_switches(plant: Plant) -> None:
    root = plant({OPS: function("f", signature="a=0, b=1")})
    assert sizes.mode_switches(root) == []


def test_the_table_has_a_row_per_layer_and_a_total(plant: Plant) -> None:
    text = "from penstock.core import ops\nfrom penstock.errors import ShapeError\n"
    root = plant(
        {
            OPS: function("f"),
            "src/penstock/draw/page.js": "1\n2\n3\n",
            "src/penstock/draw/terminal.py": text,
            "src/penstock/errors.py": "",
        }
    )
    assert [line.split() for line in sizes.table(root)[1:]] == [
        ["core", "1", "2", "0", "2", "2"],
        ["draw", "2", "5", "1", "3", "0"],
        ["errors", "1", "0", "0", "0", "0"],
        ["all", "4", "7", "1", "3", "2"],
    ]
