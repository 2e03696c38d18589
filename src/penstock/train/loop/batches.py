"""The microbatches of a step, and the plan that they are run by.

Which samples a step takes is the same under every policy: the next ones. How they are grouped is
what a policy decides.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from penstock.data import Microbatch, SampleStream
from penstock.run.policies.one_ahead import MakingTimes
from penstock.run.step.engine import Engine


class Batches(Protocol):
    """Makes the batches of a run."""

    @property
    def times(self) -> MakingTimes | None:
        """What the plan of the last batch took, where each has its own."""
        ...

    def take(self, samples: SampleStream, start: int) -> tuple[Microbatch, ...]:
        """This replica's microbatches of the step that comes after `start` samples; the engine
        then has their plan. All ranks ask together."""
        ...

    def begin(self, samples: SampleStream) -> list[str]:
        """Decide what is left to decide before the first step; returns what a person should be
        told. All ranks do so together."""
        ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, so that a run that goes on makes the same batches."""
        ...

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on as the run did that wrote a checkpoint."""
        ...

    def close(self) -> None:
        """End what works at the side."""
        ...


class PackedBatches:
    """Sequences of one length, as they are, under the plan in force."""

    times = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, samples: SampleStream, start: int) -> tuple[Microbatch, ...]:
        plan, mesh = self._engine.plan, self._engine.mesh
        share = (mesh.replica, mesh.replicas, len(plan.lengths), plan.rows)
        return samples.batch_at(start, *share)

    def begin(self, samples: SampleStream) -> list[str]:
        return []

    def state(self) -> dict[str, Any]:
        return {}

    def resume(self, state: Mapping[str, Any]) -> None:
        return None

    def close(self) -> None:
        return None
