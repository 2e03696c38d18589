"""The critical path is a chain without gaps from the first start to the last end."""

from fractions import Fraction
from itertools import pairwise

from core.samples import every
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.path import critical_path


@every
def test_every_op_on_the_path_starts_when_the_one_before_lets_it(schedule: Schedule) -> None:
    for hop in (Fraction(0), Fraction(1, 4)):
        timeline = simulate(schedule, UnitCost(hop=hop))
        path = critical_path(timeline)
        assert path[0].start == 0, hop
        assert path[-1].end == timeline.makespan, hop
        for before, after in pairwise(path):
            assert after.start - before.end in (0, hop), (hop, before, after)


def test_the_path_of_one_microbatch_goes_down_and_up_the_pipeline() -> None:
    path = critical_path(simulate(build("1f1b", devices=3, microbatches=1)))
    assert [str(span.op) for span in path] == ["0F0", "1F0", "2F0", "2B0", "1B0", "0B0"]
