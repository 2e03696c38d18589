"""The buffers of a run with fully sharded weights, as forecasts of its memory take them."""

from penstock.core.schedule import Schedule
from penstock.plan.memory import Gathered
from penstock.run.program.rotation import rotation_of


def gathered_stages(schedule: Schedule) -> list[Gathered]:
    """Who uses the buffers of each device of a schedule that has gathers and reductions."""
    rotations = (rotation_of(schedule, device) for device in range(schedule.shape.devices))
    return [Gathered(each.users("weight"), each.users("dw")) for each in rotations]
