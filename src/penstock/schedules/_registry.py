"""What a schedule is to the rest of the house: a record with a generator in it.

The record says what the schedule needs, what it claims and which options it has. Everything else
(the command line, the tests, the tables in the documents) walks the records; nobody else knows a
schedule by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from penstock.core.schedule import Draft, Lanes, Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError, nearest


@dataclass(frozen=True)
class Case:
    """One request, in the letters papers use, with op times for one device and one microbatch."""

    p: int
    m: int
    v: int = 1
    k: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    F: Fraction = Fraction(1)
    I: Fraction = Fraction(1)  # noqa: E741 - the letter of the op
    W: Fraction = Fraction(1)

    @property
    def B(self) -> Fraction:  # noqa: N802 - the letter of the op
        """A full backward costs its two halves."""
        return self.I + self.W

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def __str__(self) -> str:
        options = "".join(f" -o {key}={value}" for key, value in self.options.items())
        return f"-p {self.p} -m {self.m} -v {self.v} -k {self.k}{options}"


@dataclass(frozen=True)
class Need:
    """A condition under which a schedule exists; `text` may use {p} {m} {v} {k} and options."""

    holds: Callable[[Case], bool]
    text: str
    hint: str

    def refuse(self, name: str, case: Case) -> ShapeError:
        values = {"p": case.p, "m": case.m, "v": case.v, "k": case.k, **case.options}
        return ShapeError(
            f"{name} {case}: {self.text.format(**values)}", hint=self.hint.format(**values)
        )


@dataclass(frozen=True)
class Option:
    """A number a user may set with `-o name=value`; the default may depend on the case."""

    name: str
    default: Callable[[Case], Any]
    text: str
    parse: Callable[[str], Any] = int

    def read(self, schedule: str, value: Any) -> Any:
        try:
            return self.parse(value) if isinstance(value, str) else value
        except (ValueError, ZeroDivisionError):
            raise ShapeError(
                f"{schedule}: option {self.name}={value} cannot be read", hint=self.text
            ) from None


@dataclass(frozen=True)
class Claim:
    """A closed form of a paper. `quantity` is a property of the simulated timeline."""

    quantity: str
    """makespan, span, bubble (idle time on the busiest device, makespan - work), or peak."""
    formula: str
    """The formula as text, for tables and pages."""
    value: Callable[[Case], Any]
    source: str
    when: Callable[[Case], bool] = lambda case: True


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
    sliced: bool = False
    """Whether it cuts sequences into slices."""
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
    ) -> Case:
        """The request with defaults filled in, or an error that says what does not fit."""
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
        case = Case(
            devices,
            microbatches,
            (self.chunks or 2) if chunks is None else chunks,
            1 if slices is None else slices,
        )
        Shape.even(case.p, case.m, case.v, case.k)  # refuses impossible numbers first
        case = self._with_options(case, dict(options or {}))
        for need in self.needs:
            if not need.holds(case):
                raise need.refuse(self.name, case)
        return case

    def _with_options(self, case: Case, given: dict[str, Any]) -> Case:
        known = [option.name for option in self.options]
        for name in given:
            if name not in known:
                raise ShapeError(
                    f"{self.name} has no option {name!r}",
                    hint=nearest(name, known) if known else f"{self.name} has no options",
                )
        values: dict[str, Any] = {}
        for option in self.options:
            given_value = given.get(option.name)
            if given_value is None:
                values[option.name] = option.default(case)
            else:
                values[option.name] = option.read(self.name, given_value)
        return Case(case.p, case.m, case.v, case.k, values)

    def build(self, case: Case) -> Schedule:
        """The schedule of a request."""
        shape = Shape.even(case.p, case.m, case.v, case.k)
        return Schedule.of(self.name, shape, self.generate(shape, **case.options))


def schedule(**record: Any) -> Callable[[Callable[..., Lanes | Draft]], Spec]:
    """Decorator that turns a generator into its record."""

    def register(generate: Callable[..., Lanes | Draft]) -> Spec:
        return Spec(generate=generate, **record)

    return register
