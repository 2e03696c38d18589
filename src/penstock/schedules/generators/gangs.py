"""Ramps of a pipeline in which devices without work of their own help the others.

In step t of a pipeline stage i works on unit t - i. While the pipeline fills, stages behind have
nothing yet: stage i is then helped by all devices behind it. While it drains, stages in front have
nothing left: stage i is helped by all devices before it. Going back, the same happens mirrored.
Source: arXiv:2503.10377, section 6.
"""

from fractions import Fraction

from penstock.core.ops import Op
from penstock.core.schedule import Draft
from penstock.schedules.generators.streams import PlainOp, Unit


def members(devices: int, units: int, stage: int, unit: int) -> range:
    """Devices that compute a unit on a stage, going forward.

    >>> members(4, 8, 1, 0), members(4, 8, 1, 3), members(4, 8, 1, 7)
    (range(1, 4), range(1, 2), range(0, 2))
    """
    if unit < devices - 1 - stage:
        return range(stage, devices)
    return range(stage + 1) if unit >= units - stage else range(stage, stage + 1)


def helped_time(devices: int, units: int) -> Fraction:
    """Forwards of all units, each of time 1, if the ops of a step of the ramps end together."""
    ramp = sum(
        (Fraction(1, devices - stage) for step in range(devices - 1) for stage in range(step + 1)),
        Fraction(0),
    )
    return units - devices + 1 + 2 * ramp


def ganged_lanes(devices: int, units: list[Unit]) -> Draft:
    """All units forward and back; ops of several devices stand in the lanes of all of them."""
    lanes: list[list[PlainOp]] = [[] for _ in range(devices)]
    gangs: list[Op] = []
    for kind in "FB":
        for step in range(len(units) + devices - 1):
            for place in range(devices):
                number = step - place
                if not 0 <= number < len(units):
                    continue
                helping = members(devices, len(units), place, number)
                stage, unit = place, units[number]
                if kind == "B":  # the same, seen from the other end of model and batch
                    stage, unit = devices - 1 - place, units[-1 - number]
                    helping = range(devices - helping.stop, devices - helping.start)
                for device in helping:
                    lanes[device].append((kind, stage, *unit))
                if len(helping) > 1:
                    gangs.append(Op(kind, stage, *unit))
    return Draft(lanes, gangs=tuple(gangs))
