"""One run after the other on the same processes, each compared with the right answer.

What the oracle says depends on the model and the batch alone, and what one process arrives at
depends on the slices too: both are worked out once and kept.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter

import torch

from penstock.lower import lower
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection
from penstock.run.program.unsupported import refuse_unsupported
from penstock.verify.cases import one_process
from penstock.verify.compare import TOLERANCE, Difference, difference, unequal_bits
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import Answer, Named, answer
from penstock.verify.trial import TrialPart, run_alone, run_trial
from penstock.verify.variants import Trial, TrialWork

TrialJob = Callable[[Connection, Trial], TrialPart]
"""What every process does with a trial; tests put a mistake into it."""


def refuse_unrunnable(trials: Iterable[Trial]) -> None:
    """Refuse schedules that are refuted, or that the executor has no work for, before any run."""
    for schedule in dict.fromkeys(trial.schedule for trial in trials):
        refuse_unsupported(lower(schedule))


@dataclass(frozen=True)
class VerdictRow:
    """The verdict on one run."""

    trial: Trial
    difference: Difference
    unequal_bits: tuple[str, ...] | None
    """Parameters that differ in a bit from one process; None where that is not claimed."""
    seconds: float

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.trial.dtype]

    @property
    def bit_equal(self) -> bool | None:
        return None if self.unequal_bits is None else not self.unequal_bits

    @property
    def equal(self) -> bool:
        """Within the tolerance, and the same bits wherever that is claimed."""
        return self.difference.within(self.tolerance) and self.bit_equal is not False

    @property
    def explanation(self) -> str:
        """What is wrong, worst first; empty where nothing is."""
        found = self.difference
        parts = []
        if found.gradient > self.tolerance:
            parts.append(f"{found.parameter} differs by {found.gradient:.2g}: {found.reason}")
        if found.loss > self.tolerance:
            parts.append(f"the loss differs by {found.loss:.2g}")
        if self.unequal_bits:
            others = len(self.unequal_bits) - 1
            more = f" (and {others} more)" if others else ""
            parts.append(f"{self.unequal_bits[0]}{more} has other bits than in one process")
        return "; ".join(parts)


class Verifier:
    """Runs trials on processes that are started once, and judges them."""

    def __init__(self) -> None:
        self._crews: dict[int, Crew] = {}
        self._answers: dict[TrialWork, Answer] = {}
        self._references: dict[tuple[object, ...], Named] = {}

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        for crew in self._crews.values():
            crew.dismiss()

    def row(self, trial: Trial, job: TrialJob = run_trial) -> VerdictRow:
        """The verdict on one trial."""
        crew = self._crews.setdefault(trial.processes, Crew(trial.processes))
        start = perf_counter()
        parts = crew.run(job, trial)
        seconds = perf_counter() - start
        held = [gradient for part in parts for gradient in part.held]
        bits = tuple(unequal_bits(held, self._reference(crew, trial))) if trial.bitwise else None
        found = difference(parts[0].loss, held, self._answer(trial.work))
        return VerdictRow(trial, found, bits, seconds)

    def _answer(self, work: TrialWork) -> Answer:
        if work not in self._answers:
            parameters = parameters_of(work.model, torch.float64)
            batch = microbatches_of(work.batch, work.model.vocabulary)
            self._answers[work] = answer(work.model, parameters, batch)
        return self._answers[work]

    def _reference(self, crew: Crew, trial: Trial) -> Named:
        """The gradients of the same executor with everything on one device."""
        key = (trial.work, trial.lengths, trial.dtype)
        if key not in self._references:
            alone = crew.run(run_alone, one_process(trial))[0]
            self._references[key] = dict(alone.held)
        return self._references[key]
