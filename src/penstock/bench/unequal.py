"""The part of `penstock bench run` that runs batches of documents of very unequal lengths.

The same documents are packed into sequences as long as the longest may be, and cut into slices with
an order of their own. Every op waits for what its slice costs in a model, with the attention inside
documents, so that ranks may share cores.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from json import dumps
from math import log
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.arch.config import ModelConfig
from penstock.bench.run import BenchSettings, Result, Say, spin
from penstock.core.kernel import compile_small_work
from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.cost.model import UnitCost
from penstock.lower import lower_for_running
from penstock.plan.balance import TokenCost
from penstock.plan.packing import Packing, pack
from penstock.plan.ragged_batch import RaggedBatches, SliceRule
from penstock.plan.slice_choice import weight_read_tokens
from penstock.schedules import build, find
from penstock.sim import simulate
from penstock.transform import weigh_slices

if TYPE_CHECKING:
    from penstock.run.launch.worker_pool import Crew


def measure_unequal(settings: BenchSettings, say: Say) -> Result:
    """Every batch both ways; told row by row."""
    from penstock.run.launch.worker_pool import Crew

    rows: list[Result] = []
    with Crew(settings["ranks"]) as crew:
        for number in range(settings["batches"]):
            lengths = batch_lengths(settings, number)
            for row in _rows(crew, settings, lengths):
                rows.append({"batch": number, "tokens": sum(lengths), **row})
                say(dumps({"unequal": rows[-1]}))
    sizes = {key: settings[key] for key in ("ranks", "documents", "longest", "slice_tokens")}
    return {**sizes, "rows": rows}


def batch_lengths(settings: BenchSettings, number: int) -> list[int]:
    """Lengths of the documents of a batch, the same on every machine."""
    numbers, middle = Random(number), log(settings["median"])
    drawn = (
        numbers.lognormvariate(middle, settings["spread"]) for _ in range(settings["documents"])
    )
    return [min(max(int(length), 1), settings["longest"]) for length in drawn]


def token_cost(settings: BenchSettings) -> TokenCost:
    """What slices of the model cost on a usual device."""
    model = ModelConfig(**settings["model"], element_bytes=2)
    return TokenCost.of_model(model, weight_read_tokens(model, HARDWARE["h200"]))


def packed_order(settings: BenchSettings, lengths: list[int]) -> tuple[Packing, Schedule]:
    """Documents packed into as few sequences of the longest length as are found."""
    packing = pack(lengths, settings["longest"])
    sizes = {"devices": settings["ranks"], "microbatches": len(packing.slices)}
    return packing, _weighed(build(settings["packed"], **sizes), packing, token_cost(settings))


def sliced_order(settings: BenchSettings, lengths: list[int]) -> tuple[Packing, Schedule]:
    """The same documents in slices."""
    rule = SliceRule(*(settings[key] for key in ("slice_tokens", "retain", "warmup")))
    cost, spec = token_cost(settings), find(settings["sliced"])
    ragged = RaggedBatches(spec, settings["ranks"], rule, settings["longest"], cost)
    batch = ragged.order(lengths)
    return batch.packing, ragged.weighed(batch)


def _weighed(schedule: Schedule, packing: Packing, cost: TokenCost) -> Schedule:
    shares = [list(map(Fraction, costs)) for costs in cost.of_packing(packing)]
    return weigh_slices(schedule, shares)


def most_alive(packing: Packing, schedule: Schedule) -> int:
    """Tokens whose activations a device holds at most."""
    tokens = [list(map(Fraction, counts)) for counts in packing.tokens]
    return int(max(simulate(weigh_slices(schedule, tokens), UnitCost()).peak))


def _planned(
    make: Callable[[BenchSettings, list[int]], tuple[Packing, Schedule]],
    settings: BenchSettings,
    lengths: list[int],
) -> tuple[Packing, Schedule, float]:
    """A batch in its order, and the seconds to make, prove and lower that: the second time, as in a
    run whose plan changes with every batch and which has compiled its loops."""
    with compile_small_work():
        for _ in range(2):
            began = perf_counter()
            packing, schedule = make(settings, lengths)
            lower_for_running(schedule)
            seconds = perf_counter() - began
    return packing, schedule, seconds


def _rows(crew: "Crew", settings: BenchSettings, lengths: list[int]) -> Iterator[Result]:
    """The packed batch first: the other one is compared with it, in the same unit of time."""
    from penstock.bench.measure.emulate import emulate_at

    first, unit = None, 0.0
    for make in (packed_order, sliced_order):
        packing, schedule, planning = _planned(make, settings, lengths)
        if first is None:
            unit = settings["seconds"] / float(max(simulate(schedule, UnitCost()).work))
        found = emulate_at(crew, schedule, unit=unit, spin=spin(settings["ranks"]))
        first = first or found
        yield {
            "schedule": schedule.name,
            "slices": sum(packing.slices),
            "simulated": found.simulated,
            "measured": found.measured,
            "error": found.error,
            "simulated_gain": first.simulated / found.simulated,
            "measured_gain": first.measured / found.measured,
            "alive": most_alive(packing, schedule),
            "planning": planning,
        }
