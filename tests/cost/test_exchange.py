from penstock.arch.config import ModelConfig
from penstock.cost.exchange import exchanged_bytes, loan_bytes
from penstock.schedules import build

MODEL = ModelConfig(layers=8, hidden=64, ffn=128, heads=8, kv_heads=2, head_size=8, vocabulary=256)


def test_section_5_volume_of_a_pair_and_layer() -> None:
    """2 vol slice h_kv for keys and values, 2 slice h for queries and output, and the lse."""
    tokens, h, h_kv = 100, 64, 16
    forward = (2 * 3 * tokens * h_kv + 2 * tokens * h) * 2 + tokens * 8 * 4
    assert loan_bytes(MODEL, tokens, 3, "F") == forward
    backward = (4 * 3 * tokens * h_kv + 4 * tokens * h) * 2 + tokens * 8 * 4
    assert loan_bytes(MODEL, tokens, 3, "B") == backward


def test_a_step_moves_what_its_loans_move_in_the_layers_of_a_stage() -> None:
    schedule = build("slimpipe-exchange", devices=2, microbatches=2, slices=4)
    assert len(schedule.loans) == 2
    each = [loan_bytes(MODEL, 50, 1, kind) for kind in "FB"]
    assert exchanged_bytes(schedule, MODEL, 50) == 4 * sum(each)
