"""What a schedule is to the rest of the house: a record with a generator in it.

The record says what the schedule needs, what it claims and which options it has. Everything else
(the command line, the tests, the tables in the documents) walks the records; nobody else knows a
schedule by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any, Concatenate, Literal, ParamSpec

from penstock.core.collector import collector_resting
from penstock.core.schedule import Draft, Lanes, Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError, nearest
from penstock.schedules._case import PRICES, Case, Option

__all__ = [
    "PRICES",
    "SEVERAL_STAGES",
    "Amount",
    "Case",
    "Claim",
    "Generator",
    "Need",
    "Option",
    "Quantity",
    "Spec",
    "schedule",
]

Generator = Callable[..., Lanes | Draft]
"""Takes a shape, the case as well where the record is priced, and a parameter for each option."""
Quantity = Literal["makespan", "span", "bubble_makespan", "bubble_span", "peak", "work"]
"""Properties of a timeline that papers have formulas for."""
Amount = Fraction | int | tuple[Fraction | int, ...]
"""A time or a share; or a size or a time for each device."""
_Fields = ParamSpec("_Fields")


@dataclass(frozen=True)
class Need:
    """A condition under which a schedule exists, as a test and as a sentence."""

    holds: Callable[[Case], bool]
    text: str
    """What must be so, in the letters of `Case`: it is listed, and quoted when it fails."""
    hint: str
    """What to change; may use {p} {m} {v} {k} and the names of options."""

    def advice(self, case: Case) -> str:
        """The hint with the numbers of a request."""
        return self.hint.format(p=case.p, m=case.m, v=case.v, k=case.k, **case.options)


SEVERAL_STAGES = Need(
    lambda case: case.v >= 2,
    "a device has at least 2 stages",
    "raise -v to 2, or take a schedule with one stage per device (see `penstock list`)",
)
"""Of schedules whose devices turn from stage to stage."""


_WHOLE = "whole sequences"
"""What a schedule without slices takes."""


@dataclass(frozen=True)
class Claim:
    """A closed form of a paper, to be compared with the simulation by `==`."""

    quantity: Quantity
    """The property of a timeline it speaks of."""
    formula: str
    """The formula as text, for tables and pages; r is the device."""
    value: Callable[[Case], Amount]
    source: str
    when: Callable[[Case], bool] = lambda case: True
    condition: str = ""
    """`when` in words; empty where the claim always holds."""
    bound: bool = False
    """Whether the value is a limit that is not exceeded, instead of what is met exactly."""

    def agrees(self, found: Any, case: Case) -> bool:
        """Whether a timeline's quantity is what is claimed."""
        said = self.value(case)
        if not self.bound:
            return bool(found == said)
        pairs = zip(found, said) if isinstance(said, tuple) else [(found, said)]
        return all(value <= limit for value, limit in pairs)


@dataclass(frozen=True)
class Spec:
    """A registered schedule."""

    generate: Generator
    _: KW_ONLY
    name: str
    title: str
    paper: str
    cases: tuple[Case, ...]
    """Requests that the tests prove, price and compare with the claims."""
    chunks: int | None = 1
    """Stages per device; None where the user chooses."""
    default_chunks: int = 2
    """Stages per device where the user could choose and did not."""
    counted: str = "stages"
    """What `-v` counts, where a device has something else than so many stages."""
    sliced: bool = False
    """Whether it cuts sequences into slices."""
    sequences: str = _WHOLE
    """What it takes, where it is not one number of slices."""
    priced: bool = False
    """Whether its order depends on prices: its generator takes the case beside the shape."""
    shape: Callable[[Case], Shape] = lambda case: Shape.even(case.p, case.m, case.v, case.k)
    """What a request stands for, where that is not equal stages and equal slices."""
    needs: tuple[Need, ...] = ()
    options: tuple[Option[Any], ...] = ()
    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        """Give the cases of a record with a fixed number of stages that number."""
        if self.chunks is not None:
            for case in self.cases:
                self._refuse_fixed(None if case.v == 1 else case.v, None)
            cases = tuple(replace(case, v=self.chunks) for case in self.cases)
            object.__setattr__(self, "cases", cases)

    def case(
        self,
        devices: int,
        microbatches: int,
        chunks: int | None = None,
        slices: int | None = None,
        options: Mapping[str, Any] | None = None,
        prices: Mapping[str, Fraction] | None = None,
    ) -> Case:
        """The request with defaults filled in, or an error that says what does not fit."""
        self._refuse_fixed(chunks, slices)
        default_chunks = self.default_chunks if self.chunks is None else self.chunks
        case = Case(
            devices,
            microbatches,
            default_chunks if chunks is None else chunks,
            1 if slices is None else slices,
        ).at(prices or {})
        Shape.even(case.p, case.m, case.v, case.k)  # refuses impossible numbers first
        case = replace(case, options=self._read_options(case, dict(options or {})))
        broken = [need for need in self.needs if not need.holds(case)]
        if broken:
            raise ShapeError(
                f"{self.name} {case}: it needs that {'; and that '.join(n.text for n in broken)}",
                hint="; ".join(need.advice(case) for need in broken),
            )
        return case

    def chunks_of(self, layers: int, devices: int) -> int | None:
        """What `-v` has to be for a model of so many layers; None where that says nothing of it."""
        return layers // devices if self.counted == "layers" and layers % devices == 0 else None

    def takes(self, chunks: int | None, slices: int | None) -> bool:
        """Whether it has so many stages on a device, and cuts sequences so; None leaves it open."""
        staged = self.chunks is None or chunks in (None, self.chunks)
        return staged and (self.sliced or slices in (None, 1))

    @property
    def ragged(self) -> bool:
        """Whether its option `groups` says the length of each microbatch, so that it has an order
        for sequences of any lengths."""
        return any(option.name == "groups" for option in self.options)

    def _refuse_fixed(self, chunks: int | None, slices: int | None) -> None:
        if not self.takes(chunks, None):
            raise ShapeError(
                f"{self.name} has {self.chunks} chunk(s) per device, not {chunks}",
                hint=f"leave -v out, or give -v {self.chunks}",
            )
        if not self.takes(None, slices):
            raise ShapeError(
                f"{self.name} {self._refusing_slices}, but -k {slices} was given",
                hint="leave -k out, or take a schedule with slices (see `penstock list`)",
            )

    @property
    def _refusing_slices(self) -> str:
        """Why a number of slices has no meaning here."""
        if self.sequences == _WHOLE:
            return "does not cut sequences into slices"
        return f"takes {self.sequences} and no number of slices"

    def _read_options(self, case: Case, given: dict[str, Any]) -> dict[str, Any]:
        known = [option.name for option in self.options]
        for name in given:
            if name not in known:
                raise ShapeError(
                    f"{self.name} has no option {name!r}",
                    hint=nearest(name, known) if known else f"{self.name} has no options",
                )
        return {
            option.name: option.default(case)
            if given.get(option.name) is None
            else option.read(self.name, given[option.name])
            for option in self.options
        }

    def build(self, case: Case) -> Schedule:
        """The schedule of a request."""
        shape = self.shape(case)
        given = (shape, case) if self.priced else (shape,)
        with collector_resting():
            return Schedule.of(self.name, shape, self.generate(*given, **case.options))


def _decorator(
    spec: Callable[Concatenate[Generator, _Fields], Spec],
) -> Callable[_Fields, Callable[[Generator], Spec]]:
    """The record without its generator, which the decorated function becomes.

    The fields keep their names and types, so that a misspelt one is found by the type checker.
    """

    def record(*fields: _Fields.args, **named: _Fields.kwargs) -> Callable[[Generator], Spec]:
        return lambda generate: spec(generate, *fields, **named)

    return record


schedule = _decorator(Spec)
"""Decorator that turns a generator into its record; it takes the fields of `Spec`."""
