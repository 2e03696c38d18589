import pytest

from penstock.cost.architecture import MODELS, ModelConfig, model
from penstock.errors import ShapeError


def gpt(layers: int, hidden: int, heads: int, vocabulary: int) -> ModelConfig:
    """The shape that papers count: heads fill the hidden size, a plain MLP of four times it."""
    head_size = hidden // heads
    return ModelConfig(layers, hidden, 4 * hidden, heads, heads, head_size, vocabulary, gated=False)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-7b", 6_738_415_616),
        ("llama3.2-1b", 1_235_814_400),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
    ],
)
def test_parameters_are_those_of_the_published_checkpoints(name: str, parameters: int) -> None:
    assert model(name).parameters == parameters


def test_a_plain_layer_has_twelve_hidden_squared_weights() -> None:
    assert gpt(2, 64, 4, 100).layer_weights == 12 * 64**2


def test_grouped_heads_shrink_keys_and_values_only() -> None:
    grouped, full = model("llama3-8b"), ModelConfig(32, 4096, 14336, 32, 32, 128, 128256)
    assert grouped.kv_bytes * 4 == full.kv_bytes == 2 * 4096 * 2
    assert full.layer_weights - grouped.layer_weights == 2 * 4096 * 128 * (32 - 8)
    assert grouped.pair_flops == full.pair_flops == 4 * 4096
    assert grouped.saved_bytes == full.saved_bytes


def test_saved_activations_are_the_34_h_of_the_papers_without_dropout_masks() -> None:
    """arXiv:2401.10241 counts s b (34 h + 5 a s) bytes per layer: 2 h of them are two dropout
    masks of one byte, and the 5 a s are scores that are not kept when a log-sum-exp is.
    """
    config = gpt(1, 96, 6, 50)
    log_sum_exp = 4 * config.heads
    assert config.saved_bytes + config.kv_bytes - log_sum_exp == (34 - 2) * 96


def test_the_stash_is_the_32_h_of_the_papers() -> None:
    """arXiv:2401.10241: M_W = 32 s b h bytes per layer."""
    assert gpt(1, 96, 6, 50).stash_bytes == 32 * 96


def test_a_gated_layer_saves_and_stashes_one_more_product() -> None:
    gated = ModelConfig(1, 8, 20, 2, 1, 4, 10)
    # norms 4 x 8, query and attention output 2 x 8, gate, up and their product 3 x 20
    assert gated.saved_bytes == 2 * (32 + 16 + 60) + 4 * 2
    # inputs 8 + 8 + 8 + 20; gradients of Q K V 16, of the attention output 8, of the MLP 40 and 8
    assert gated.stash_bytes == 2 * (44 + 16 + 8 + 48)


def test_every_preset_can_be_found_and_a_misspelt_one_gets_a_hint() -> None:
    assert all(model(name) is config for name, config in MODELS.items())
    with pytest.raises(ShapeError, match="did you mean 'llama-7b'"):
        model("lama-7b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"ffn": -1}, "ffn is -1"),
        ({"hidden": 6.5}, "hidden is 6.5"),
        ({"kv_heads": 3}, "4 heads cannot share 3"),
    ],
)
def test_impossible_models_are_refused(change: dict[str, int], message: str) -> None:
    numbers = {
        "layers": 4, "hidden": 64, "ffn": 192, "heads": 4, "kv_heads": 2, "head_size": 16,
        "vocabulary": 256,
    }  # fmt: skip
    with pytest.raises(ShapeError, match=message):
        ModelConfig(**{**numbers, **change})
