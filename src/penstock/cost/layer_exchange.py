"""Bytes that a loan of attention work moves for a layer of a model, and for a whole step."""

from fractions import Fraction

from penstock.arch.config import ModelConfig
from penstock.arch.layers.record import LSE_BYTES
from penstock.core.schedule import Schedule
from penstock.cost.exchange import Exchange, exchange_of


def layer_exchange(
    model: ModelConfig, kind: str, tokens: int, lent_tokens: Fraction | int
) -> Exchange:
    """One layer: queries of `tokens` tokens, keys and values of `lent_tokens`."""
    keys_and_values = Fraction(2 * lent_tokens * model.kv_heads * model.head_size)
    queries = Fraction(tokens * model.heads * model.head_size)
    size = model.element_bytes
    lse = Fraction(tokens * model.heads * LSE_BYTES)
    return exchange_of(kind, queries * size, keys_and_values * size, lse)


def step_exchange(schedule: Schedule, model: ModelConfig, tokens: int) -> int:
    """Bytes of all loans of a step, both ways, for slices of `tokens` tokens and layers spread
    evenly."""
    layers = model.layers // schedule.shape.stages
    return sum(
        layers * int(sum(layer_exchange(model, loan.heavy.kind, tokens, loan.slices * tokens)))
        for loan in schedule.loans
    )
