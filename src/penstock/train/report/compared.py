"""The schedules that a report sets beside that of its run."""

from penstock.core.schedule import Schedule
from penstock.schedules import build
from penstock.train.config.settings import Settings


def compared_schedules(settings: Settings, devices: int) -> list[Schedule]:
    """What the report shows beside the run; asked for early, so that a night's run does not end
    with a name that nobody knows."""
    return [
        build(name, devices=devices, microbatches=settings.batch.microbatches)
        for name in settings.log.compare
    ]
