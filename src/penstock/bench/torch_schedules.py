"""PyTorch's constructor of the same schedule, timed in the same run.

PyTorch builds a schedule's order from live pipeline stages, so it is handed a mock of one. It is
loaded by name and only here, because Penstock itself works without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any
from unittest import mock

from penstock.core.schedule import Schedule


@dataclass(frozen=True)
class TorchSchedule:
    """A constructor that is ready to be timed."""

    version: str
    construct: Callable[[], Any]

    def same_order(self, ours: Schedule) -> bool:
        """Whether it builds the very lanes that we build."""
        theirs = self.construct().pipeline_order
        return len(theirs) == ours.shape.devices and all(
            [str(action) for action in theirs[device] if action is not None]
            == [str(op) for op in ours.lane(device)]
            for device in range(ours.shape.devices)
        )


def find_rival(names: Mapping[str, str], ours: Schedule) -> TorchSchedule | str:
    """The rival of one of our schedules, or why there is none here."""
    package = names["module"].partition(".")[0]
    try:
        module = import_module(names["module"])
    except ImportError:
        return f"{package} is not installed"
    build, stage_type = getattr(module, names["schedule"]), getattr(module, names["stage"])
    shape = ours.shape
    stage = mock.create_autospec(stage_type, instance=True)
    stage.group_rank, stage.group_size = 0, shape.devices
    stage.num_stages, stage.submod = shape.stages, None
    stages = [stage] * int(shape.chunks)
    return TorchSchedule(metadata.version(package), lambda: build(stages, shape.microbatches))
