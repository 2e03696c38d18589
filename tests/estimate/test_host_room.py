"""Activations on the host need its memory, and all GPUs of a machine share it."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.cluster.presets import GIBI
from penstock.estimate.host_room import SHARE_FOR_STEP
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate, estimate, layout_cost
from penstock.estimate.reasons import reasons
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import step_schedule
from penstock.plan.host_memory import host_peaks


def _layout(**changes: Any) -> TrainingLayout:
    row = {"model": "llama3.2-1b", "cluster": "h100:8", "tokens": 8192, "schedule": "1f1b"}
    sizes = {"batch_tokens": 32 * 8192, "mesh": "pipeline=4", "offload": "all"}
    return layout_from(row | sizes | changes)


def _with_host(layout: TrainingLayout, memory: int) -> Estimate:
    machine = replace(layout.cluster.machine, memory=memory)
    return estimate(replace(layout, cluster=replace(layout.cluster, machine=machine)))


def _peaks(layout: TrainingLayout) -> list[int]:
    step = step_schedule(layout)
    return host_peaks(step.schedule, layout_cost(layout, step).workload, layout.rows)


def test_a_machine_has_what_all_its_ranks_have() -> None:
    layout = _layout()
    assert estimate(layout).host == 2 * sum(_peaks(layout)) > 0


@pytest.mark.parametrize("order", ["pipeline=16", "pipeline=8,tensor=2"])
def test_the_machine_with_the_fullest_devices_decides(order: str) -> None:
    """Of 16 ranks the first 8 have the first devices, which hold most."""
    layout = _layout(cluster="h100:16", mesh=order)
    per_device = 16 // layout.pipeline
    assert estimate(layout).host == per_device * sum(_peaks(layout)[: layout.pipeline // 2])


def test_rows_are_counted() -> None:
    one, two = (estimate(_layout(rows=rows, batch_tokens=rows * 2**18)) for rows in (1, 2))
    assert two.host == 2 * one.host


def test_a_host_that_is_too_small_is_told() -> None:
    found = estimate(_layout())
    enough = int(found.host / SHARE_FOR_STEP) + 1
    assert _with_host(found.layout, enough).fits
    lacking = _with_host(found.layout, enough - GIBI)
    assert not lacking.fits
    assert (lacking.lacks, lacking.host_lacks > 0.8 * GIBI) == (0, True)
    assert "on its host and lack 0.9 GiB" in " ".join(reasons(lacking))


def test_a_host_that_nobody_knows_is_told() -> None:
    found = _with_host(_layout(), 0)
    assert found.fits
    assert "whose memory is not known" in " ".join(reasons(found))


def test_without_copies_the_host_has_nothing() -> None:
    found = estimate(_layout(offload="none"))
    assert found.host == 0
    assert "host" not in " ".join(reasons(found))
