import inspect
from dataclasses import dataclass

from penstock.cli._flat import flat


@dataclass(frozen=True)
class Size:
    width: int = 1
    height: int | None = None


def test_a_group_becomes_one_parameter_per_field() -> None:
    seen: list[object] = []

    def verb(name: str, size: Size, loud: bool = False) -> None:
        """Does it."""
        seen.append((name, size, loud))

    run = flat(verb)
    assert list(inspect.signature(run).parameters) == ["name", "width", "height", "loud"]
    assert run.__annotations__ == {"name": str, "width": int, "height": int | None, "loud": bool}
    assert run.__doc__ == "Does it."
    run(name="a", width=3, height=None, loud=True)
    assert seen == [("a", Size(3, None), True)]
