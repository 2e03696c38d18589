"""Changes that can be made to any schedule, by name, and in which order several are made.

A system of a paper is often a schedule and something that would do as well elsewhere: slices,
activations computed again, a vocabulary on all devices, activations on the host. Whoever wants two
of them together has to know which comes first: slices are cut before anything counts them, what is
computed again is not kept, and copies are placed last, between all that takes time.

    combine(schedule, ["offload", "slices"])    cut in slices, then offloaded
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError, nearest
from penstock.transform.offload import offload_stages
from penstock.transform.recompute import recompute_all
from penstock.transform.slices import cut_slices
from penstock.transform.vocabulary import spread_vocabulary


class Change(NamedTuple):
    """What is made of a schedule, and in words."""

    text: str
    apply: Callable[[Schedule], Schedule]


def _in_halves(schedule: Schedule) -> Schedule:
    return cut_slices(schedule, 2)


def _offloaded(schedule: Schedule) -> Schedule:
    return offload_stages(schedule, range(schedule.shape.stages))


CHANGES: Mapping[str, Change] = {
    "slices": Change("each slice cut into two", _in_halves),
    "recompute": Change("every forward run again before its backward", recompute_all),
    "vocabulary": Change("embedding and head in shards on all devices", spread_vocabulary),
    "offload": Change("activations on the host until their backward", _offloaded),
}
"""In the order in which they are made."""


def combine(schedule: Schedule, names: Collection[str]) -> Schedule:
    """The schedule with all changes of these names."""
    for name in names:
        if name not in CHANGES:
            raise ShapeError(f"no change is called {name!r}", hint=nearest(name, [*CHANGES]))
    return make_changes(schedule, {name: CHANGES[name].apply for name in names})


def make_changes(
    schedule: Schedule, changes: Mapping[str, Callable[[Schedule], Schedule]]
) -> Schedule:
    """The schedule with changes of other extents than the usual ones, by their names."""
    for name in CHANGES:
        if name in changes:
            schedule = changes[name](schedule)
    return schedule
