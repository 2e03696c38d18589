"""A request in the letters papers use, and the options it may have.

Needs, claims and defaults are formulas over a request. It is a class with typed parts, so that a
misspelt letter in a formula is found by the type checker and not by the first user who asks. An
option is asked for by itself, `c[GROUP]`, for the same reason: a name in quotes would be checked by
nobody, and would have no type.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

from penstock.errors import ShapeError

Value = TypeVar("Value")

PRICES = ("F", "I", "W", "act", "stash", "hop")
"""Prices that every case has."""


@dataclass(frozen=True)
class Case:
    """One request in the letters papers use, with the prices under which its claims are read."""

    p: int
    m: int
    v: int = 1
    """Stages per device; a case of a record with a fixed number of them has that number."""
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

    def __getitem__(self, option: "Option[Value]") -> Value:
        value: Value = self.options[option.name]
        return value

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


@dataclass(frozen=True)
class Option(Generic[Value]):
    """A value a user may set with `-o name=value`; the default may depend on the case."""

    name: str
    parse: Callable[[str], Value]
    """Reads what a user types, and says by its type what the option is: int, Fraction, ..."""
    default: Callable[[Case], Value]
    text: str
    least: int | None = 1
    """The smallest number; None where the value is no number."""

    def read(self, schedule: str, value: Any) -> Value:
        """The value of a text or number, or an error that says what the option is."""
        try:
            number: Any = self.parse(str(value))
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
        read: Value = number
        return read
