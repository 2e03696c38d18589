"""Penstock trains long-context language models with pipeline parallelism.

A schedule is data: generated, proven, priced, drawn and run.

    from penstock import build, simulate

    schedule = build(NAME, devices=4, microbatches=8)
    simulate(schedule).makespan

The checker and the lowering are packages of the same name: `penstock.check.check` proves a
schedule, `penstock.lower.lower` turns it into a program.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.ops import Op, parse_op
    from penstock.core.schedule import Schedule
    from penstock.core.shape import Shape
    from penstock.cost.model import UnitCost
    from penstock.errors import PenstockError
    from penstock.files import load, save
    from penstock.schedules import build, find, registry
    from penstock.sim import simulate
    from penstock.sim.timeline import Timeline

__version__ = "0.1.0"

__all__ = [
    "Op",
    "PenstockError",
    "Schedule",
    "Shape",
    "Timeline",
    "UnitCost",
    "build",
    "find",
    "load",
    "parse_op",
    "registry",
    "save",
    "simulate",
]

_HOMES = {
    "penstock.core.ops": ("Op", "parse_op"),
    "penstock.core.schedule": ("Schedule",),
    "penstock.core.shape": ("Shape",),
    "penstock.cost.model": ("UnitCost",),
    "penstock.errors": ("PenstockError",),
    "penstock.files": ("load", "save"),
    "penstock.schedules": ("build", "find", "registry"),
    "penstock.sim": ("simulate",),
    "penstock.sim.timeline": ("Timeline",),
}
"""Where the public names live; a name is loaded when it is first used."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
