"""Bytes that a loan of attention work moves between two devices.

Going forward the heavy device sends keys and values of the lent slices and its queries, and gets a
partial output back with its log-sum-exp. Going back it sends all of these and the gradient of the
output, and gets gradients of queries, keys and values back. Keys and values of past slices are
there early, so they can travel before the layer starts; the rest is on the way while both compute.
Source: arXiv:2504.14519, released code.
"""

from penstock.arch.config import ModelConfig
from penstock.arch.layers.record import LSE_BYTES
from penstock.core.schedule import Loan, Schedule

FORWARD_KINDS = "FNR"


def loan_bytes(model: ModelConfig, tokens: int, slices: int, kind: str) -> int:
    """Both directions together, for one layer: slices of `tokens` tokens, `slices` of them lent."""
    keys_and_values = 2 * slices * tokens * model.kv_heads * model.head_size
    queries_and_output = 2 * tokens * model.heads * model.head_size
    each_way = (keys_and_values + queries_and_output) * model.element_bytes
    lse = tokens * model.heads * LSE_BYTES
    return each_way + lse if kind in FORWARD_KINDS else 2 * each_way + lse


def exchanged_bytes(schedule: Schedule, model: ModelConfig, tokens: int) -> int:
    """What all loans of a step move, for slices of `tokens` tokens and layers spread evenly."""
    layers = model.layers // schedule.shape.stages

    def moved(loan: Loan) -> int:
        return layers * loan_bytes(model, tokens, loan.slices, loan.heavy.kind)

    return sum(map(moved, schedule.loans))
