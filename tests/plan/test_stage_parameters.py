"""Parameters of stages that are alike are counted once, with the counts of each."""

from dataclasses import replace

import pytest

from penstock.arch.lora import Lora
from penstock.arch.presets import MODELS
from penstock.core.schedule import Schedule
from penstock.cost.workload import Workload
from penstock.plan.stage_parameters import (
    counts_of_homes,
    frozen_elements,
    stage_elements,
    stage_matrices,
    stored_elements,
)
from penstock.schedules import build
from penstock.transform import combine

PLAIN = build("interleaved", devices=2, microbatches=2, chunks=2)
SCHEDULES = {"plain": PLAIN, "with shards": combine(PLAIN, ["vocabulary"])}
TINY = replace(MODELS["tiny"], layers=7)
MODELS_OF_RUNS = {
    "plain": TINY,
    "tied": replace(TINY, tied=True),
    "adapters": replace(TINY, lora=Lora(2)),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("model", MODELS_OF_RUNS.values(), ids=MODELS_OF_RUNS)
def test_each_home_has_its_own_counts(schedule: Schedule, model: object) -> None:
    work = Workload.of(schedule.shape, model, (32,))  # type: ignore[arg-type]
    every = (stage_matrices, stage_elements, stored_elements, frozen_elements)
    wanted = [
        tuple(count(work, home, schedule.shape) for count in every)
        for home in range(schedule.shape.homes)
    ]
    assert [*map(tuple, counts_of_homes(work, schedule.shape))] == wanted
