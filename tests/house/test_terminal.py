"""Nothing prints past the place that makes text harmless."""

from pathlib import Path

import pytest

from house import terminal
from house.conftest import Plant
from house.source import none_of

OPS = "src/penstock/core/ops.py"


def test_text_reaches_a_terminal_in_one_place(house: Path) -> None:
    none_of(terminal.prints(house))


@pytest.mark.parametrize(
    "call",
    [
        "print(text)",
        "sys.stdout.write(text)",
        "sys.stderr.write(text)",
        "self.console.print(text)",
        "screen.console.print(f'{printable(text)}')",
    ],
)
def test_a_print_elsewhere_is_found(plant: Plant, call: str) -> None:
    (complaint,) = terminal.prints(plant({OPS: f"\n{call}\n"}))
    assert complaint.startswith(f"{OPS}:2: ")


@pytest.mark.parametrize("call", ["say_error(text)", "self.console.print(printable(text))"])
def test_the_one_place_may_be_called(plant: Plant, call: str) -> None:
    assert terminal.prints(plant({OPS: f"{call}\n"})) == []
    assert terminal.prints(plant({"src/penstock/terminal.py": "print(text)\n", OPS: ""})) == []
