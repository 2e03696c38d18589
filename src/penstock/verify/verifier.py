"""One run after the other on the same processes, each compared with the right answer.

What the oracle says depends on the model and the batch alone, and what one process arrives at
depends on the slices too: both are worked out once and kept.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

from penstock.lower import lower
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.program.rotation import rotation_of
from penstock.run.program.sharded_schedule import schedule_for
from penstock.run.program.unsupported import refuse_unsupported
from penstock.run.step.shardings import sharding_named
from penstock.verify.cases import one_process
from penstock.verify.compare import (
    CHOICE_TOLERANCE,
    FROM_ONE_PROCESS,
    TOLERANCE,
    Difference,
    Tolerance,
    difference,
    unequal_bits,
)
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import Answer, answer
from penstock.verify.trial import TrialPart, run_alone, run_trial
from penstock.verify.variants import Trial, TrialWork

TrialJob = Callable[[Connection, Trial], TrialPart]
"""What every process does with a trial; tests put a mistake into it."""


def refuse_unrunnable(trials: Iterable[Trial]) -> None:
    """Refuse schedules that are refuted, that the executor has no work for, or whose weights cannot
    be gathered as a run asks, before any run."""
    for schedule, shard in dict.fromkeys((trial.schedule, trial.shard) for trial in trials):
        refuse_unsupported(lower(schedule))
        sharded = schedule_for(schedule, sharding_named(shard).buffers)
        for device in range(schedule.shape.devices):
            rotation_of(sharded, device)


@dataclass(frozen=True)
class VerdictRow:
    """The verdict on one run."""

    trial: Trial
    difference: Difference
    unequal_bits: tuple[str, ...] | None
    """Parameters that differ in a bit from one process; None where that is not claimed."""
    seconds: float
    from_one_process: Difference | None = None
    """How far one process is that works on the same slices; None where bits are compared."""
    back_end: str = ""
    """What moved tensors between processes: nccl, gloo, or the host."""

    @property
    def tolerance(self) -> Tolerance:
        limit, model = TOLERANCE[self.trial.scale.name][self.trial.dtype], self.trial.work.model
        if not (model.mixture or model.subsampling):
            return limit
        return CHOICE_TOLERANCE.get(self.trial.dtype, limit)

    @property
    def bit_equal(self) -> bool | None:
        return None if self.unequal_bits is None else not self.unequal_bits

    @property
    def equal(self) -> bool:
        """Within the tolerances, and the same bits wherever that is claimed."""
        return not self._beyond and self.bit_equal is not False

    @property
    def explanation(self) -> str:
        """What is wrong, worst first; empty where nothing is."""
        parts = self._beyond
        if self.unequal_bits:
            others = len(self.unequal_bits) - 1
            more = f" (and {others} more)" if others else ""
            parts.append(f"{self.unequal_bits[0]}{more} has other bits than in one process")
        return "; ".join(parts)

    @property
    def _beyond(self) -> list[str]:
        """Differences that are no rounding, in words."""
        parts = self.difference.beyond(self.tolerance)
        if self.from_one_process is not None:
            limit = FROM_ONE_PROCESS[self.trial.dtype]
            parts += self.from_one_process.beyond(limit, " from one process")
        return parts


class Verifier:
    """Runs trials on processes that are started once, and judges them."""

    def __init__(self) -> None:
        self._crews: dict[tuple[int, str], Crew] = {}
        self._answers: dict[TrialWork, Answer] = {}
        self._references: dict[tuple[object, ...], Answer] = {}

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        for crew in self._crews.values():
            crew.dismiss()

    def crew_for(self, trial: Trial) -> Crew:
        """The processes of a trial; on GPUs they agree on what moves their tensors."""
        key = (trial.processes, trial.scale.device)
        if key not in self._crews:
            back_end = "gloo" if trial.scale.device == "cpu" else ""
            self._crews[key] = Crew(trial.processes, back_end=back_end)
        return self._crews[key]

    def row(self, trial: Trial, job: TrialJob = run_trial) -> VerdictRow:
        """The verdict on one trial."""
        crew = self.crew_for(trial)
        start = perf_counter()
        parts = crew.run(job, trial)
        seconds = perf_counter() - start
        loss, held = parts[0].loss, [gradient for part in parts for gradient in part.held]
        bits = apart = None
        if trial.bitwise:
            bits = tuple(unequal_bits(held, self._reference(crew, trial).gradients))
        elif trial.scale.claim == "distance":
            apart = difference(loss, held, self._reference(crew, trial))
        found = difference(loss, held, self._answer(trial))
        return VerdictRow(trial, found, bits, seconds, apart, parts[0].back_end)

    def _answer(self, trial: Trial) -> Answer:
        """The oracle's, from the device of the trial, where it takes less time."""
        work = trial.work
        if work not in self._answers:
            parameters = parameters_of(work.model, torch.float64)
            placed = {name: value.to(trial.scale.device) for name, value in parameters.items()}
            batch = microbatches_of(work.batch, work.model.vocabulary)
            with _one_thread():
                loss, gradients = answer(work.model, placed, batch, work.slices)
            self._answers[work] = Answer(loss, {name: g.cpu() for name, g in gradients.items()})
        return self._answers[work]

    def _reference(self, crew: Crew, trial: Trial) -> Answer:
        """Loss and gradients of the same executor with everything on one device."""
        single = one_process(trial)
        key = (single.work, single.lengths, single.dtype, single.scale.device)
        if key not in self._references:
            alone = crew.run(run_alone, single)[0]
            self._references[key] = Answer(
                alone.loss, {each.name: each.gradient for each in alone.held}
            )
        return self._references[key]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors of a trial are so small that threads wait for each other, at full speed, six times as
    long as they work; the processes of the trials need those cores."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
