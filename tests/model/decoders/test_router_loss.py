"""A decoder with experts as stages: its auxiliary loss is none, or a reason to refuse it."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from penstock.errors import ShapeError
from penstock.model.decoders.decoder_stages import decoder_stages
from penstock.model.decoders.token_loss import token_loss
from run import decoder_jobs as jobs

pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

EXPERTS: dict[str, Any] = {
    "intermediate_size": 24,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}


def decoder(**changes: Any) -> Any:
    """A model with experts that has no record here."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("granitemoe", **jobs.SIZES, **EXPERTS)
    for name, value in changes.items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    "changes", [{}, {"output_router_logits": True, "router_aux_loss_coef": 0.0}]
)
def test_without_one_the_loss_of_the_stages_is_that_of_transformers(
    changes: dict[str, Any],
) -> None:
    words, labels = jobs.batch(0)
    given = words.masked_fill(labels.roll(1, 1) == -100, -100)
    given[:, 0] = -100  # transformers moves labels by one itself
    wanted = decoder(**changes)(input_ids=words, labels=given).loss
    found = words
    for stage in decoder_stages(decoder(**changes), 2):
        found = stage(found)
    torch.testing.assert_close(token_loss(found, labels), wanted, rtol=1e-6, atol=0)


def test_a_model_that_is_told_to_add_it_is_refused_with_its_weight() -> None:
    """transformers adds it then, so leaving it out would be another loss."""
    model = decoder(output_router_logits=True, router_aux_loss_coef=0.25)
    words = jobs.batch(0)[0]
    plain = decoder()(input_ids=words, labels=words).loss
    assert model(input_ids=words, labels=words).loss - plain > 0.2
    with pytest.raises(ShapeError, match=r"auxiliary loss .* 0\.25") as caught:
        decoder_stages(model, 2)
    assert "output_router_logits = False" in caught.value.hint
