"""The prices of a request as a cost model, for orders that are simulated while they are built."""

from penstock.cost.model import SIZES, UnitCost
from penstock.schedules import Case


def cost_of(case: Case) -> UnitCost:
    """What ops and buffers cost in a request."""
    sizes = {name: price for name, price in case.others.items() if name in SIZES}
    times = {name: price for name, price in case.others.items() if name not in SIZES}
    return UnitCost(
        times={"F": case.F, "I": case.I, "W": case.W, **times},
        sizes={"act": case.act, "stash": case.stash, **sizes},
        hop=case.hop,
    )
