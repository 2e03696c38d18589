"""Runs whose plan changes: what is learnt stays, and what is shown says which plan and why."""

import json

import pytest

from penstock.bench.measure.delayed_transport import Delayed
from penstock.run.step import build
from train.runs.ranks import Ran, Setting, fresh

pytestmark = pytest.mark.torch

ADAPTIVE = ("plan.policy=adaptive", "plan.every=2")
IMPROVING = ("plan.policy=improving", "plan.every=1", "plan.effort=0.1")
DELAY = 0.3
"""Seconds: long beside what ops of this model take on a busy machine."""


def late_transfers() -> None:
    """Every message of this process leaves late."""
    plain = build.transport_for

    def late(*given: object) -> Delayed:
        transport = Delayed(plain(*given))  # type: ignore[arg-type]
        transport.seconds = DELAY
        return transport

    build.transport_for = late


def _plans(ran: Ran) -> list[dict[str, object]]:
    return [json.loads(line) for line in (ran.folder / "plans.jsonl").read_text().splitlines()]


@pytest.mark.matrix
def test_late_transfers_change_the_plan_and_nothing_else(
    setting: Setting, undisturbed: Ran
) -> None:
    """Also after a restart, which begins with the first plan again. Slices of a group take turns,
    so their sums have another order."""
    name = fresh("adaptive")
    half = ("run.steps=4", "optimizer.schedule_steps=8")
    first = setting.run(*ADAPTIVE, *half, name=name, prepare=late_transfers)
    assert first.codes == (0, 0), first.said
    begun, changed = _plans(first)
    assert (begun["step"], begun["plan"]) == (0, "seq1f1b")
    assert str(changed["plan"]).startswith("seq1f1b+group")
    assert changed["step"] == 2
    assert float(str(changed["after"])) < float(str(changed["before"]))
    said = f"from step 3 on: {changed['plan']}, predicted {changed['after']:.3f} s a step instead"
    assert said in first.said[0]
    assert f"left  {changed['plan']} since step 3" in first.said[0]
    rest = setting.run(*ADAPTIVE, name=name, prepare=late_transfers)
    assert rest.codes == (0, 0), rest.said
    assert [record["step"] for record in _plans(rest)][:3] == [0, 2, 4]
    assert rest.losses == pytest.approx(undisturbed.losses, rel=1e-10, abs=0)
    timed = (rest.folder / "timing.jsonl").read_text().splitlines()
    assert [json.loads(line)["plan"] for line in timed][:4] == ["seq1f1b"] * 2 + [
        changed["plan"]
    ] * 2


def test_a_run_that_a_solver_works_for_learns_the_same(setting: Setting, undisturbed: Ran) -> None:
    """Whether it finds a better order in time depends on the machine; what is learnt does not."""
    ran = setting.run(*IMPROVING, "log.report=true", name=fresh("improving"))
    assert ran.codes == (0, 0), ran.said
    assert ran.losses == pytest.approx(undisturbed.losses, rel=1e-10, abs=0)
    assert _plans(ran)[0]["plan"] == "seq1f1b+split"
    assert "plans, with the predicted seconds of a step before and with each" in ran.said[0]
