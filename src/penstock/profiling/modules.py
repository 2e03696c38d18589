"""Seconds of each kind of module in a step: kernels one by one, times what the step makes of them.

The table adds up to the ops of the step but for what no factor explains, which is its last row: the
rest of the step, with the time between ops.
"""

from collections.abc import Sequence
from typing import Any

from penstock.cluster.measured import ATTENTION_PASSES, EXPERT_ROWS
from penstock.profiling.case import KINDS_OF_STAGE
from penstock.profiling.in_step import StepFactors, StepOps

MeasuredRow = dict[str, Any]
PRODUCT_NAMES = ("queries, keys and values", "attention output", "MLP gate and up", "MLP down")
"""Products of a layer in their order."""
PRODUCTS_OF_EXPERTS = (*PRODUCT_NAMES[:2], "router", "experts' gate and up", "experts' down")
"""The same of a layer with experts."""


def module_rows(step: StepOps, factors: StepFactors) -> Sequence[MeasuredRow]:
    """Forward and backward seconds of all layers together, and of what is beside them."""
    layers, found = step.case.sizes.layers, dict[str, list[float]]()
    names = PRODUCTS_OF_EXPERTS if step.case.model.mixture else PRODUCT_NAMES
    for unit in step.units:
        for (name, passed), seconds in step.times.parts(unit).items():
            at, factor = int(passed != "forward"), factors.in_step[passed]
            named = _named(name, names)
            found.setdefault(named, [0.0, 0.0])[at] += layers * factor * seconds
    attended = zip(ATTENTION_PASSES, step.attended(range(len(KINDS_OF_STAGE))))
    found["attention"] = [
        layers * factors.in_step[f"attention {name}"] * float(seconds.sum())
        for name, seconds in attended
    ]
    found |= _beside(step, factors)
    found["between kernels"] = _fixed(step, factors)
    found["clearing, norm and update"] = [0.0, step.clearing + _ended(step)]
    explained = sum(map(sum, found.values()))
    rows = [_row(name, there, back, there + back) for name, (there, back) in found.items()]
    rows.append(_row("rest", 0.0, 0.0, step.seconds - explained))
    return [row | {"share": row["seconds"] / step.seconds} for row in rows]


def _row(name: str, there: float, back: float, both: float) -> MeasuredRow:
    return {
        "name": name,
        "forward_seconds": there,
        "backward_seconds": back,
        "seconds": both,
    }


def _named(name: str, products: Sequence[str]) -> str:
    word, _, number = name.partition(" ")
    if word != "product":
        moving = {"norm": "norms", "sum": "residual sums", EXPERT_ROWS: "rows of experts"}
        return moving.get(name, name)
    at = int(number)
    return products[at] if at < len(products) else name


def _beside(step: StepOps, factors: StepFactors) -> dict[str, list[float]]:
    """Embedding and head."""
    model, tokens = step.case.model, step.case.tokens
    row, flops = model.embedding.row_bytes, 3 * model.vocabulary * model.head.flops_per_logit
    head = sum(step.times.head_alone(count, flops * count, "B") for count in step.case.lengths)
    moved = [row * tokens * times for times in (2, 3)]
    rates = [factors.rates[f"lookup {name}"] for name in ("forward", "inputs")]
    return {
        "embedding": [moved[0] / rates[0], moved[1] / rates[1]],
        "head and loss": [0.0, factors.in_step["head"] * head],
    }


def _fixed(step: StepOps, factors: StepFactors) -> list[float]:
    """What layers and the head take however few their tokens are."""
    layers, fixed = step.case.sizes.layers, factors.fixed
    backward = layers * (fixed["inputs"] + fixed["weights"]) + fixed["head"]
    return [step.case.slices * layers * fixed["forward"], step.case.slices * backward]


def _ended(step: StepOps) -> float:
    return sum(seconds for op, seconds in step.ops.items() if op.kind not in "FIW")
