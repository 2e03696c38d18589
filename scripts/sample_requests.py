"""One request for each schedule that can stand beside the others: 4 devices, 8 microbatches, 4
slices where sequences are cut, or as near as its needs allow."""

from contextlib import suppress
from itertools import product

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.schedules import Case, Spec

DEVICES, MICROBATCHES, SLICES = 4, (8, 12, 16, 11, 4, 3, 2), (4, 8, 2)


def sample(spec: Spec) -> Case:
    """The preferred request among those that a schedule accepts."""
    for m, k in product(MICROBATCHES, SLICES if spec.sliced else (None,)):
        with suppress(ShapeError):
            return spec.case(DEVICES, m, None, k)
    raise AssertionError(f"{spec.name} accepts none of the sizes that are tried")


def sample_of(spec: Spec) -> Schedule:
    return spec.build(sample(spec))


def command(spec: Spec) -> str:
    """The request as it is typed."""
    case = sample(spec)
    slices = f" -k {case.k}" if spec.sliced else ""
    return f"{spec.name} -p {case.p} -m {case.m}{slices}"
