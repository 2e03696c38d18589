"""Steps that estimates are compared with: models, lengths and slices that were not profiled."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.families import to_huggingface
from penstock.bench.run import read_bench_settings
from penstock.errors import ShapeError, shown
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.request import layout_from
from penstock.profiling.case import ProfileCase
from penstock.profiling.record import model_of


@dataclass(frozen=True)
class CheckCase:
    """A step of a model."""

    case: ProfileCase
    microbatches: int = 1
    devices: int = 1
    """Of the pipeline, each a rank."""

    @property
    def schedule(self) -> str:
        """By slices: of whole sequences, or of slices."""
        settings = read_bench_settings()["gpu"]
        found: str = settings["sliced" if self.case.slices > 1 else "whole"]
        return found

    def estimated(self, profile: str) -> Estimate:
        """What `penstock estimate` says with a profile."""
        row: dict[str, Any] = {
            "model": to_huggingface(self.case.sizes),
            "profile": profile,
            "tokens": self.case.tokens,
            "batch_tokens": self.case.tokens * self.microbatches,
            "schedule": self.schedule,
            "mesh": f"pipeline={self.devices},replicas=1",
        }
        if self.case.slices > 1:
            row["slices"] = self.case.slices
        return estimate(layout_from(row))

    @property
    def named(self) -> dict[str, Any]:
        """What a row says of its case."""
        case = self.case
        return {
            "model": case.name,
            "tokens": case.tokens,
            "slices": case.slices,
            "microbatches": self.microbatches,
        }


def in_pipeline(case: CheckCase, devices: int) -> CheckCase:
    """The same on several devices, with as many times the microbatches."""
    if case.case.sizes.layers < devices:
        raise ShapeError(
            f"{case.case.name} has {case.case.sizes.layers} layers for {devices} devices",
            hint="take fewer devices, or a model with more layers",
        )
    return replace(case, microbatches=devices * case.microbatches, devices=devices)


def usual_cases(profiled: ProfileCase, devices: int = 1) -> Iterator[CheckCase]:
    """Other lengths and slices of the profiled model, and models of other sizes."""
    tokens, slices = profiled.tokens, max(2, profiled.slices)
    half = tokens // 2
    for length, count in ((half, 1), (half, slices), (tokens, 1), (tokens, 2 * slices)):
        yield CheckCase(replace(profiled, tokens=length, slices=count))
    yield CheckCase(replace(profiled, tokens=2 * tokens, slices=slices))
    model = profiled.sizes
    fewer = replace(model, layers=max(3, devices, model.layers // 2))
    yield CheckCase(_other(profiled, "fewer layers", fewer, tokens, slices), 2)
    yield CheckCase(_other(profiled, "twice as wide", _wider(fewer), half, slices))
    words = replace(model, vocabulary=max(2, model.vocabulary // 2))
    yield CheckCase(_other(profiled, "fewer words", words, half, 1))


def _other(
    profiled: ProfileCase, name: str, sizes: ModelConfig, tokens: int, slices: int
) -> ProfileCase:
    return ProfileCase(f"{profiled.name}, {name}", sizes, tokens, slices, profiled.precision)


def _wider(model: ModelConfig) -> ModelConfig:
    return replace(
        model,
        hidden=2 * model.hidden,
        ffn=2 * model.ffn,
        heads=2 * model.heads,
        kv_heads=2 * model.kv_heads,
    )


def named_case(text: str, precision: str) -> CheckCase:
    """A case as MODEL:TOKENS[:SLICES[:MICROBATCHES]].

    >>> named_case("tiny:64:2", "fp32").case.slices
    2
    """
    name, *numbers = text.split(":")
    whole = 1 <= len(numbers) <= 3 and all(
        each.isascii() and each.isdecimal() and 0 < len(each) < 10 and int(each) for each in numbers
    )
    if not whole:
        raise ShapeError(
            f"--case {shown(text)} is not a case",
            hint="write MODEL:TOKENS:SLICES:MICROBATCHES; the last two are 1 where left out",
        )
    tokens, slices, microbatches = (*map(int, numbers), 1, 1)[:3]
    return CheckCase(ProfileCase(name, model_of(name), tokens, slices, precision), microbatches)
