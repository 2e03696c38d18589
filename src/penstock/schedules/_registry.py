"""What a schedule is to the rest of the house: a record with a generator in it.

The record says what the schedule needs, what it claims and which options it has. Everything else
(the command line, the tests, the tables in the documents) walks the records; nobody else knows a
schedule by name.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from penstock.core.schedule import Draft, Lanes, Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError, nearest


@dataclass(frozen=True)
class Case:
    """One request in the letters papers use, with the prices under which its claims are read."""

    p: int
    m: int
    v: int = 1
    k: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    F: Fraction = Fraction(1)
    I: Fraction = Fraction(1)  # noqa: E741 - the letter of the op
    W: Fraction = Fraction(1)
    act: Fraction = Fraction(1)
    """Memory from a forward to its input gradient, for one microbatch on one device."""
    stash: Fraction = Fraction(1)
    """What of it remains from the input gradient to the weight gradient."""
    hop: Fraction = Fraction(0)
    """Latency of a transfer between devices."""
    others: Mapping[str, Fraction] = field(default_factory=dict)
    """Times of other kinds, by their letter, and sizes of other buffers, by their name; 0 where
    nothing is said."""

    @property
    def B(self) -> Fraction:  # noqa: N802 - the letter of the op
        """A full backward costs its two halves."""
        return self.I + self.W

    @property
    def step(self) -> Fraction:
        """Everything one device does for one microbatch."""
        return self.F + self.B

    @property
    def held(self) -> Fraction:
        """The most that one microbatch holds on one device."""
        return max(self.act, self.stash)

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def price(self, name: str) -> Fraction:
        """Time of a kind or size of a buffer that most schedules do not have."""
        return self.others.get(name, Fraction(0))

    def at(self, prices: Mapping[str, Fraction]) -> "Case":
        """The request under other prices: times by letter, sizes by name, and `hop`."""
        known: dict[str, Any] = {key: price for key, price in prices.items() if key in PRICES}
        others = {name: price for name, price in prices.items() if name not in PRICES}
        return replace(self, **known, others={**self.others, **others})

    def __str__(self) -> str:
        options = "".join(f" -o {key}={value}" for key, value in self.options.items())
        return f"-p {self.p} -m {self.m} -v {self.v} -k {self.k}{options}"


PRICES = ("F", "I", "W", "act", "stash", "hop")
"""Prices that every case has."""


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


@dataclass(frozen=True)
class Option:
    """A number a user may set with `-o name=value`; the default may depend on the case."""

    name: str
    default: Callable[[Case], Any]
    text: str
    parse: Callable[[str], Any] = int
    least: int | None = 1
    """The smallest number; None where the value is no number."""

    def read(self, schedule: str, value: Any) -> Any:
        """The value of a text or number, or an error that says what the option is."""
        try:
            number = self.parse(str(value))
        except (ValueError, ZeroDivisionError):
            raise ShapeError(
                f"{schedule}: option {self.name}={value} cannot be read",
                hint=f"{self.name} is {self.text}",
            ) from None
        if self.least is not None and number < self.least:
            raise ShapeError(
                f"{schedule}: option {self.name}={value} is below {self.least}",
                hint=f"{self.name} is {self.text}; give {self.least} or more",
            )
        return number


@dataclass(frozen=True)
class Claim:
    """A closed form of a paper, to be compared with the simulation by `==`."""

    quantity: str
    """The property of a timeline it speaks of: makespan, span, bubble_makespan, peak, ..."""
    formula: str
    """The formula as text, for tables and pages; r is the device."""
    value: Callable[[Case], Any]
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

    name: str
    title: str
    paper: str
    generate: Callable[..., Lanes | Draft]
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
    sequences: str = "whole sequences"
    """What it takes, where it is not one number of slices."""
    priced: bool = False
    """Whether its order depends on prices: its generator takes the case beside the shape."""
    shape: Callable[[Case], Shape] = lambda case: Shape.even(case.p, case.m, case.v, case.k)
    """What a request stands for, where that is not equal stages and equal slices."""
    needs: tuple[Need, ...] = ()
    options: tuple[Option, ...] = ()
    claims: tuple[Claim, ...] = ()

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

    def _refuse_fixed(self, chunks: int | None, slices: int | None) -> None:
        if self.chunks is not None and chunks not in (None, self.chunks):
            raise ShapeError(
                f"{self.name} has {self.chunks} chunk(s) per device, not {chunks}",
                hint=f"leave -v out, or give -v {self.chunks}",
            )
        if not self.sliced and slices not in (None, 1):
            raise ShapeError(
                f"{self.name} does not cut sequences into slices, but -k {slices} was given",
                hint="leave -k out, or take a schedule with slices (see `penstock list`)",
            )

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
        with _collector_resting():
            return Schedule.of(self.name, shape, self.generate(*given, **case.options))


@contextmanager
def _collector_resting() -> Iterator[None]:
    """Look for no reference cycles among the new ops: tuples of numbers have none to find.

    The search would take as long as making a million of them.
    """
    working = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if working:
            gc.enable()


def schedule(**record: Any) -> Callable[[Callable[..., Lanes | Draft]], Spec]:
    """Decorator that turns a generator into its record."""

    def register(generate: Callable[..., Lanes | Draft]) -> Spec:
        return Spec(generate=generate, **record)

    return register
