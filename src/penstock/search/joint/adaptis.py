"""AdaPtis: cut, placement and order are searched together, for layers that differ.

A schedule with equal stages waits for its heaviest one. A large vocabulary, experts behind dense
layers or a mix of attention and state-space layers make stages unequal, and no cut makes up for it:
layers cannot be divided, and an even cut for one order is uneven for another. So all three are
tuned at once for the costs of the layers, within the memory that there is.

    p = 2, v = 2, m = 2 (F is the first stage of a device, f its second; outer stages are lighter)
    device 0  F0 F1 f0 f1 i0 w0 i1 I0 W0 I1 W1 w1
    device 1  F0 F1 f0 i0 f1 i1 I0 W0 I1 w0 w1 W1

Needs: as many layers as devices; memory for one microbatch at a time.
Claims: peak at most limit; makespan at most that of 1F1B with the evenest cut, (m + p - 1)(F + B)
times its heaviest stage, where the limit admits 1F1B. Source: arXiv:2509.23722 for the idea, the
performance model and the worked example.
Where we differ: the paper's search is not published; list scheduling, the neighbours and the
exchange of ops are ours. Orders of the other registered schedules are starting points.
"""

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from penstock.core.numbers import read_bytes
from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.cost.layers import layered_shape, read_layers
from penstock.errors import PenstockError, ShapeError
from penstock.schedules._registry import PRICES, Case, Claim, Need, Option, schedule
from penstock.search.joint.joint import Candidate, Problem
from penstock.search.joint.moves import GRAIN, Split, evenest
from penstock.search.joint.pipeline import Scale, Whole
from penstock.search.joint.quick import quick

PAPER = "arXiv:2509.23722"


class JointRequest(NamedTuple):
    """What decides the answer; the key under which it is kept."""

    p: int
    m: int
    v: int
    prices: tuple[tuple[str, Fraction], ...]
    layers: str
    limit: Fraction | None

    @classmethod
    def of(cls, case: Case) -> "JointRequest":
        prices = tuple((name, getattr(case, name)) for name in PRICES)
        return cls(case.p, case.m, case.v, prices, case[LAYERS], case[LIMIT])

    @property
    def scale(self) -> Scale:
        """The layers at the prices, in whole numbers."""
        return Scale.of(read_layers(self.layers), Case(self.p, self.m).at(dict(self.prices)))

    @property
    def cap(self) -> int:
        """The limit, or what p microbatches take on an average device, as with 1F1B."""
        scale = self.scale
        return int(scale.layers[:, 3].sum()) if self.limit is None else scale.limit(self.limit)


def _read(text: str) -> str:
    """The text of layers, once it has been read without complaint."""
    try:
        read_layers(text)
    except PenstockError as error:
        raise ShapeError(f"layers={text}: {error.message}", hint=error.hint) from None
    return text


def _has_layers(case: Case) -> bool:
    return len(read_layers(case[LAYERS])) >= case.p


def _has_memory(case: Case) -> bool:
    """Whether some cut keeps one microbatch at a time within the limit on every device."""
    if not _has_layers(case):
        return True  # another need says so
    request = JointRequest.of(case)
    held = request.scale.layers[:, 3]
    return int(_stages(held, evenest(held, case.p)).max()) <= request.cap


def _stages(column: Whole, split: Split) -> Whole:
    """Sums of a column over the layers of each stage."""
    return np.add.reduceat(column, np.cumsum([0, *split])[:-1])


def _one_f_one_b(case: Case) -> tuple[Whole, Scale]:
    """Columns F, I, W, act and stash of the stages of the evenest cut."""
    scale = JointRequest.of(case).scale
    split = evenest(scale.layers[:, :3].sum(axis=1), case.p)
    return np.stack([_stages(column, split) for column in scale.layers.T]), scale


def _time(case: Case) -> Fraction:
    """As if each stage were as slow as the slowest, where 1F1B has a closed form."""
    stages, scale = _one_f_one_b(case)
    slowest = int(stages[0].max()) + int((stages[1] + stages[2]).max())
    return (case.m + case.p - 1) * slowest * scale.tick


def _admits(case: Case) -> bool:
    """Whether 1F1B with the evenest cut keeps within the limit."""
    stages, _ = _one_f_one_b(case)
    live = np.minimum(np.arange(case.p, 0, -1), case.m)
    return case.hop == 0 and int((stages[3] * live).max()) <= JointRequest.of(case).cap


@lru_cache(maxsize=256)
def _found(request: JointRequest) -> Candidate:
    """The best candidate with up to v stages per device; one with fewer may be the best."""
    scale, v = request.scale, request.v
    found = quick(Problem(scale, request.p, request.m, v, request.cap))
    fewer = _found(request._replace(v=v - 1)) if v > 1 else None
    if fewer is not None and (found is None or fewer.standing < found.standing):
        return fewer
    if found is None:
        raise ShapeError(
            f"no order of {request.m} microbatches keeps within {request.cap * scale.grain}",
            hint="raise -o limit",
        )
    return found


def _shape(case: Case) -> Shape:
    """The shape of the cut that was found."""
    request = JointRequest.of(case)
    return layered_shape(read_layers(request.layers), _found(request).layout.split, case.p, case.m)


LAYERS = Option(
    "layers",
    _read,
    default=lambda c: f"{GRAIN * c.p}*1/{GRAIN}",
    text="the layers as COUNT*TIME@MEMORY,... in units of the times and sizes, as 16*1,4@0, or a "
    "file with a line for each kind of layer; equal ones if left out",
    least=None,
)

LIMIT = Option(
    "limit",
    read_bytes,
    default=lambda c: None,
    text="what a device may hold, in the unit of act and stash; that of p microbatches on "
    "an average device if left out",
    least=0,
)


@schedule(
    name="adaptis",
    title="split, placement and order searched together for layers that differ",
    paper=PAPER,
    chunks=None,
    priced=True,
    shape=_shape,
    options=(LAYERS, LIMIT),
    needs=(
        Need(_has_layers, "there are at least p layers", "lower -p {p}, or give more layers"),
        Need(
            _has_memory,
            "one microbatch at a time fits on every device",
            "raise -o limit={limit}, or give layers that keep less",
        ),
    ),
    claims=(
        Claim(
            "makespan",
            "(m + p - 1)(F + B), F and B of the heaviest stage of the evenest cut",
            _time,
            f"{PAPER}, section 4: never worse than where the search starts",
            when=_admits,
            condition="the limit admits 1F1B with that cut, and no latency",
            bound=True,
        ),
        Claim(
            "peak",
            "limit",
            lambda c: (JointRequest.of(c).cap * JointRequest.of(c).scale.grain,) * c.p,
            f"{PAPER}, section 4",
            bound=True,
        ),
    ),
    cases=(
        Case(4, 8, v=2, options={"layers": "16*1,4@0", "limit": 24}),
        Case(4, 8, v=2),
        Case(4, 8, v=1, options={"limit": 3}),
        Case(2, 3, v=3, options={"layers": "3,4*1/2@1,2"}),
        Case(1, 2, v=1),
    ),
)
def adaptis(shape: Shape, case: Case, layers: str, limit: Fraction | None) -> Lanes:
    """The lanes of the best candidate."""
    found = _found(JointRequest.of(case))
    return found.listed.order.lanes(found.pipeline)
