"""Penstock trains long-context language models with pipeline parallelism.

A schedule is data: generated, proven, simulated, drawn and run.

    import penstock

    schedule = penstock.build(NAME, devices=4, microbatches=8)
    penstock.check(schedule).proven
    penstock.simulate(schedule).makespan
    penstock.draw(schedule).save("picture.svg")

`docs/reference/python.md` describes every name. A name is loaded when it is first used, so that
importing the package costs nothing; nothing but `pipeline`, `verify` and `run` needs torch.

The checker, the lowering, the pictures and the verifier are packages that have the name of what
they do. Such a package can be called, and then does it: `penstock.check(schedule)` is
`penstock.check.check`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.display import Displayed

if TYPE_CHECKING:
    from penstock import run
    from penstock.check import Finding, Report, check
    from penstock.core.ops import Op, parse_op
    from penstock.core.program import Program
    from penstock.core.schedule import Schedule
    from penstock.core.shape import Shape
    from penstock.cost.model import UnitCost
    from penstock.errors import (
        FormatError,
        PenstockError,
        PlanError,
        RunError,
        ScheduleError,
        ShapeError,
    )
    from penstock.files import load, save
    from penstock.interface.picture import Picture, draw
    from penstock.lower import lower
    from penstock.run import pipeline
    from penstock.schedules import build, find, registry
    from penstock.sim import simulate
    from penstock.sim.timeline import Timeline
    from penstock.verify import verify

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "FormatError",
    "Op",
    "PenstockError",
    "Picture",
    "PlanError",
    "Program",
    "Report",
    "RunError",
    "Schedule",
    "ScheduleError",
    "Shape",
    "ShapeError",
    "Timeline",
    "UnitCost",
    "build",
    "check",
    "draw",
    "find",
    "load",
    "lower",
    "parse_op",
    "pipeline",
    "registry",
    "run",
    "save",
    "simulate",
    "verify",
]

_HOMES = {
    "penstock.check": ("Finding", "Report", "check"),
    "penstock.core.ops": ("Op", "parse_op"),
    "penstock.core.program": ("Program",),
    "penstock.core.schedule": ("Schedule",),
    "penstock.core.shape": ("Shape",),
    "penstock.cost.model": ("UnitCost",),
    "penstock.errors": (
        "FormatError",
        "PenstockError",
        "PlanError",
        "RunError",
        "ScheduleError",
        "ShapeError",
    ),
    "penstock.files": ("load", "save"),
    "penstock.interface.picture": ("Picture", "draw"),
    "penstock.lower": ("lower",),
    "penstock.run": ("pipeline",),
    "penstock.schedules": ("build", "find", "registry"),
    "penstock.sim": ("simulate",),
    "penstock.sim.timeline": ("Timeline",),
    "penstock.verify": ("verify",),
}
"""Where the public names live."""

_VERBS = ("check", "draw", "lower", "verify")
"""Functions that have the name of a package."""


class _Verb(ModuleType):
    """A package that does what its name says when it is called."""

    @property
    def __wrapped__(self) -> Any:
        """The function, which gives its signature to whoever asks for that of the package."""
        return _public(self.__name__.removeprefix("penstock."))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)


class _Package(ModuleType):
    """Python hands a package to the one around it as soon as it is imported, by whatever way; so
    `penstock.check` is one thing, whether or not somebody has imported something from it before."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _VERBS and isinstance(value, ModuleType):
            value.__class__ = _Verb
        super().__setattr__(name, value)


def _public(name: str) -> Any:
    """A public name, from the module where it lives."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    if name in (*_VERBS, "run"):
        return import_module(f"penstock.{name}")
    return _public(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


sys.modules[__name__].__class__ = _Package
Displayed.drawer = "penstock.interface.notebook"
