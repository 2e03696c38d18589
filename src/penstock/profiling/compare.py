"""Two profiles side by side: what is faster, and whether the difference is more than noise."""

from collections.abc import Iterator
from math import exp, log, sqrt
from typing import NamedTuple

from penstock.cluster.measured import PRODUCT_PASSES
from penstock.cluster.profile_file import ProfilePart
from penstock.errors import ShapeError
from penstock.estimate.reasons import number_words

SAME = ("device", "torch", "cuda", "threads")
"""What two profiles should have in common, for a difference to be one of what was profiled."""
CERTAIN = 2.0
"""Deviations that a difference must have to be more than noise."""


class ComparedValue(NamedTuple):
    """One number of both."""

    name: str
    first: float
    second: float
    noise: float | None = None
    """Relative deviation of the ratio, where both were measured several times."""

    @property
    def ratio(self) -> float:
        return self.second / self.first if self.first else float("inf")

    @property
    def certain(self) -> bool | None:
        """Whether the difference is more than noise; None where nobody knows."""
        if self.noise is None:
            return None
        return abs(self.ratio - 1) > CERTAIN * self.noise


def refuse_others(first: ProfilePart, second: ProfilePart) -> None:
    """Refuse profiles of different machines or libraries."""
    for name in SAME:
        there, here = first["made"].get(name), second["made"].get(name)
        if there != here:
            raise ShapeError(
                f"the profiles differ in {name}: {there} and {here}",
                hint="compare profiles of one machine, or give --force",
            )


def different_steps(first: ProfilePart, second: ProfilePart) -> str:
    """In what the cases of two profiles differ, in words; nothing where they are of one step."""
    both = zip(*(_step_words(each["case"]) for each in (first, second)))
    return "; ".join(f"{one} and {other}" for one, other in both if one != other)


def _step_words(case: ProfilePart) -> tuple[str, ...]:
    return (
        f"model {case['model']}",
        f"{case['tokens']:,} tokens",
        number_words(len(case["lengths"]), "slice"),
        case["precision"],
        "fused kernels" if case["fused"] else "plain kernels",
    )


def compare_profiles(first: ProfilePart, second: ProfilePart) -> Iterator[ComparedValue]:
    """Step, phases, modules, memory and kernels of both, as far as both have them."""
    steps = first["step"], second["step"]
    noise = sqrt(sum((step["deviation"] / step["mean"]) ** 2 for step in steps))
    yield ComparedValue("step s", steps[0]["seconds"], steps[1]["seconds"], noise)
    rates = (step["tokens_per_second"] for step in steps)
    yield ComparedValue("tokens/s", *rates)
    for name, took in first["phases"].items():
        if took or second["phases"].get(name):
            yield ComparedValue(f"{name} s", took, second["phases"].get(name, 0.0))
    modules = {row["name"]: row["seconds"] for row in second["modules"]}
    for row in first["modules"]:
        if row["name"] in modules and row["name"] != "rest":
            yield ComparedValue(f"{row['name']} s", row["seconds"], modules[row["name"]])
    for name in ("step", "allocated", "reserved"):
        sizes = (each["memory"][f"{name}_bytes"] / 2**20 for each in (first, second))
        yield ComparedValue(f"{name} MiB", *sizes)
    for passed in PRODUCT_PASSES:
        if found := _products(first, second, passed):
            yield found


def _products(first: ProfilePart, second: ProfilePart, passed: str) -> ComparedValue | None:
    """The mean rate of products that both have measured."""
    rates = [
        {
            (row["m"], row["n"], row["k"], row.get("groups")): row["flops_per_second"]
            for row in record["products"]
            if row["pass"] == passed
        }
        for record in (first, second)
    ]
    common = rates[0].keys() & rates[1].keys()
    if not common:
        return None
    means = (exp(sum(log(each[shape]) for shape in common) / len(common)) for each in rates)
    name = f"{len(common)} products {passed}, GFLOP/s"
    return ComparedValue(name, *(mean / 1e9 for mean in means))
