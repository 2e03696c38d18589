from penstock.arch.config import ModelConfig
from penstock.cost.exchange import Exchange
from penstock.cost.layer_exchange import layer_exchange, step_exchange
from penstock.schedules import build

MODEL = ModelConfig(layers=8, hidden=64, ffn=128, heads=8, kv_heads=2, head_size=8, vocabulary=256)
TOKENS, H, H_KV, LSE = 100, 64, 16, 100 * 8 * 4


def test_section_5_volume_of_a_pair_and_layer() -> None:
    """2 vol slice h_kv for keys and values, 2 slice h for queries and output, and the lse."""
    forward = (2 * 3 * TOKENS * H_KV + 2 * TOKENS * H) * 2 + LSE
    assert sum(layer_exchange(MODEL, "F", TOKENS, 3 * TOKENS)) == forward
    backward = (4 * 3 * TOKENS * H_KV + 4 * TOKENS * H) * 2 + LSE
    assert sum(layer_exchange(MODEL, "B", TOKENS, 3 * TOKENS)) == backward


def test_queries_keys_and_values_go_there_and_a_partial_output_comes_back() -> None:
    lent, queries = 2 * 3 * TOKENS * H_KV * 2, TOKENS * H * 2
    forward = layer_exchange(MODEL, "F", TOKENS, 3 * TOKENS)
    assert forward == Exchange(lent + queries, queries + LSE)
    backward = layer_exchange(MODEL, "B", TOKENS, 3 * TOKENS)
    assert backward == Exchange(lent + 3 * queries + LSE, lent + queries)


def test_a_step_moves_what_its_loans_move_in_the_layers_of_a_stage() -> None:
    schedule = build("slimpipe-exchange", devices=2, microbatches=2, slices=4)
    assert len(schedule.loans) == 2
    each = [sum(layer_exchange(MODEL, kind, 50, 50)) for kind in "FB"]
    assert step_exchange(schedule, MODEL, 50) == 4 * sum(each)
