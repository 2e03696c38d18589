"""Whether it can pay to spread the vocabulary over the devices of a pipeline.

With passes over the vocabulary every microbatch waits for all devices once or twice. In return no
device has more to do than the others, and none has the head's weights. A split of the layers evens
out the head as well, but for less than a layer, which matters where devices have few of them.

    32 layers, a head like 2.4    slowest device, balanced    spread
    2 devices                     17.4                        17.2
    4 devices                      9.0                         8.6
    8 devices                      5.0                         4.3
"""

from functools import lru_cache
from itertools import accumulate, pairwise

from penstock.arch.layer_split import even_split
from penstock.planner.balanced import balanced_split
from penstock.planner.divisions import Division
from penstock.planner.model_loads import ModelLoads
from penstock.planner.problem import PlanProblem

LEAST_SPREADING_GAIN = 0.03
"""Share of the slowest device's work that has to go where a device is a cell of several ranks: the
search has hundreds of such divisions, and each of them would have twice as many candidates."""


def spreading_can_pay(problem: PlanProblem, division: Division, offload: str) -> bool:
    """Whether plans of a division with a vocabulary on all devices are tried, unless they are asked
    for. On cells not beside copies to hosts, of which bounds know little then."""
    if division.pipeline == 1:
        return False
    asked = problem.fixed.get("vocabulary") or "schedule" in problem.fixed
    if division.in_cell == 1 or asked:
        return True
    gain = spreading_gain(problem.loads, division.pipeline)
    return offload == "none" and gain >= LEAST_SPREADING_GAIN


@lru_cache(maxsize=256)
def spreading_gain(loads: ModelLoads, devices: int) -> float:
    """What share of its work the slowest device loses.

    >>> [round(spreading_gain(ModelLoads((1.0,) * 32, head=2.4), p), 3) for p in (2, 4, 8)]
    [0.011, 0.044, 0.14]
    """
    even = even_split(len(loads.layers), devices)
    apart = _dealt(loads, balanced_split(loads, (devices, 1), looped=True) or even)
    apart[0] += loads.embedding
    apart[-1] += loads.head
    spread = max(_dealt(loads, even)) + (loads.embedding + loads.head) / devices
    return 1 - spread / max(apart)


def _dealt(loads: ModelLoads, counts: tuple[int, ...]) -> list[float]:
    """What the layers of each device take."""
    ends = accumulate(counts, initial=0)
    return [sum(loads.layers[first:end]) for first, end in pairwise(ends)]
