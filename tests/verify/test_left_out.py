"""Each collective of a cell is needed: a step without one of them is wrong.

A sum that is missing may change little, and whoever looks at the loss alone does not see it. So
calls are left out one at a time, a rank going on with what it has by itself, and the comparison
with the oracle has to fail. A table names every place where ranks do something together; a test
holds it against what really happens.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest

from penstock.arch.cell_shape import CellShape
from penstock.run.step.engine import Engine
from penstock.run.step.state import entries, publish
from penstock.verify.compare import TOLERANCE, Difference
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.trial import TrialPart, trial_part
from penstock.verify.variants import Trial
from verify.cell_ranks import CallSite, LeftOut, on_threads
from verify.cell_samples import cut_at_attention, from_right, sample, with_weights_sent
from verify.collectives_table import TABLE, Collective

pytestmark = pytest.mark.torch

LIMIT = TOLERANCE["cpu"]["float64"]
SEEN = 1e-5
"""What is left out changes the result by more than this: a hundred thousand times the tolerance."""


def evaluated(engine: Engine, trial: Trial) -> TrialPart:
    """The loss of a batch, forward only, and no gradients."""
    values = parameters_of(engine.layout.model, engine.layout.main)
    for entry in entries(engine):
        entry.take(values[entry.name])
    publish(engine)
    batch = microbatches_of(trial.work.batch, engine.layout.model.vocabulary)
    return TrialPart(engine.evaluate([batch]), [])


class Sample(NamedTuple):
    """A trial, and what its ranks do."""

    trial: Trial
    work: Callable[[Engine, Trial], TrialPart] = trial_part

    def error(self, left_out: LeftOut | None = None) -> float:
        """How far the result is from the right one."""
        parts = [report.result for report in on_threads(self.trial, self.work, left_out)]
        found: Difference = from_right(self.trial, parts)
        return found.loss if self.work is evaluated else max(found.loss, found.gradient)


REPLICATED = CellShape(tensor=2, norms="replicated")
SAMPLES = {
    "scattered": Sample(sample(CellShape(tensor=3), rows=2)),
    "replicated": Sample(sample(REPLICATED)),
    "ulysses": Sample(sample(CellShape(ulysses=2))),
    "ring": Sample(sample(CellShape(ring=3))),
    "replicas": Sample(sample(CellShape(), replicas=2, ignored=(1, 3))),
    "owners": Sample(sample(CellShape(), replicas=2, shard="optimizer", ignored=(1, 3))),
    "full": Sample(sample(CellShape(ulysses=2), microbatches=2, shard="full")),
    "attention": Sample(cut_at_attention(sample(CellShape(tensor=2, ulysses=2)))),
    "attention, replicated": Sample(cut_at_attention(sample(REPLICATED))),
    "weights sent, replicated": Sample(with_weights_sent(sample(REPLICATED))),
    "evaluation": Sample(sample(CellShape(tensor=3)), evaluated),
    "evaluation, replicated": Sample(sample(REPLICATED), evaluated),
}
"""Three ranks for four heads of two key/value heads: one of these is held by two ranks."""


class Calls(NamedTuple):
    """The place of a collective in the code, and how often a rank calls it there."""

    site: CallSite
    count: int


@cache
def clean(name: str) -> dict[Collective, Calls]:
    """What is called where in a run from which nothing is left out; without texts."""
    counts: Counter[CallSite] = Counter()
    chosen = SAMPLES[name]
    for report in on_threads(chosen.trial, chosen.work):
        counts |= report.calls
    found: dict[Collective, Calls] = {}
    for site in sorted(counts, key=lambda site: site.line):
        key = Collective("", site.where, site.how, site.purpose)
        while key in found:
            key = key._replace(turn=key.turn + 1)
        found[key] = Calls(site, counts[site])
    return found


def calls_of(name: str, collective: Collective) -> Calls:
    return clean(name)[collective._replace(text="")]


ROWS = [
    pytest.param(name, each, number, id=f"{name}: {each.text}")
    for name, collectives in TABLE.items()
    for number, each in enumerate(collectives)
]


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLES)
def test_a_step_with_all_of_them_is_right(name: str) -> None:
    assert SAMPLES[name].error() < LIMIT.gradient


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLES)
def test_the_table_has_every_place_where_ranks_do_something_together(name: str) -> None:
    assert {each._replace(text="") for each in TABLE[name]} == set(clean(name))
    assert len({each.text for each in TABLE[name]}) == len(TABLE[name])


@pytest.mark.long
@pytest.mark.parametrize(("name", "collective", "number"), ROWS[::6])
def test_a_step_without_one_call_is_wrong(name: str, collective: Collective, number: int) -> None:
    _wrong_without(name, collective, number)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "collective", "number"), [row for at, row in enumerate(ROWS) if at % 6]
)
def test_a_step_without_one_call_of_the_others_is_wrong(
    name: str, collective: Collective, number: int
) -> None:
    _wrong_without(name, collective, number)


def _wrong_without(name: str, collective: Collective, number: int) -> None:
    """Another call of each: of the first or a later layer, slice or stage."""
    site, count = calls_of(name, collective)
    assert SAMPLES[name].error(LeftOut(site, number % count)) > SEEN


@pytest.mark.matrix
@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "collective", "number"), ROWS)
def test_a_step_without_any_one_call_is_wrong(
    name: str, collective: Collective, number: int
) -> None:
    site, count = calls_of(name, collective)
    errors = [SAMPLES[name].error(LeftOut(site, call)) for call in range(count)]
    assert min(errors) > SEEN
