"""What is verified with is the same everywhere, and labelled as training data is."""

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.data.batch import IGNORE
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.variants import Batch

pytestmark = pytest.mark.torch

BATCH = Batch(3, rows=2, length=8, ignored=(1, 3), documents=((0, 3), (0,), (0, 5, 6)))


def test_documents_and_ignored_labels_go_round_in_turn() -> None:
    found = microbatches_of(BATCH, 10)
    assert [microbatch.documents for microbatch in found] == [
        ((0, 3), (0,)),
        ((0, 5, 6), (0, 3)),
        ((0,), (0, 5, 6)),
    ]
    assert [microbatch.valid for microbatch in found] == [6 + 7, 4 + 4, 7 + 5]


def test_a_label_is_the_next_token_of_the_same_document() -> None:
    for microbatch in microbatches_of(BATCH, 10):
        for tokens, labels, starts in zip(
            microbatch.tokens, microbatch.labels, microbatch.documents
        ):
            for position, label in enumerate(labels.tolist()):
                last = position + 1 in (*starts, BATCH.length)
                assert label in ((IGNORE,) if last else (IGNORE, int(tokens[position + 1])))


def test_both_types_get_the_same_numbers_every_time() -> None:
    model = ModelConfig(1, 8, 12, 2, 1, 4, 10, tied=True)
    wide, narrow = (parameters_of(model, dtype) for dtype in (torch.float64, torch.float32))
    assert "lm_head.weight" not in wide
    for name, value in narrow.items():
        assert torch.equal(value.double(), wide[name])
        assert torch.equal(value, parameters_of(model, torch.float32)[name])
