"""Which keys a `config.json` may have: those that are read, those that must have one value, and
those that do not change what the model computes.

Every other key is refused by name. It may be harmless, but who wrote it meant something by it, and
a model that silently lacks it would only be noticed by its loss.
"""

from collections.abc import Collection, Mapping
from typing import Any

from penstock.arch.limits import LARGEST_OF_MODEL, MOST_MODEL_LAYERS, refuse_count
from penstock.arch.rope_keys import ROPE_KEYS as ROPE_KEYS
from penstock.arch.window_keys import WINDOW_KEYS as WINDOW_KEYS
from penstock.errors import ShapeError, shown

FixedKeys = Mapping[str, tuple[Any, str]]
"""By key: the value that it must have, and why."""

FIXED: FixedKeys = {
    "mlp_bias": (False, "the MLP has no biases"),
    "lm_head_bias": (False, "the head has no bias"),
    "attention_bias": (False, "the output projection of the attention has no bias"),
    "attention_dropout": (0, "there is no dropout"),
    "hidden_dropout": (0, "there is no dropout"),
    "pretraining_tp": (1, "matrices are not multiplied in parts"),
    "use_mrope": (False, "positions have one coordinate"),
    "interpolate_factor": (1, "positions are not interpolated"),
    "full_attn_mod": (1, "windows are stated otherwise"),
    "is_encoder_decoder": (False, "the model is a decoder"),
    "add_cross_attention": (False, "the model is a decoder"),
    "pruned_heads": ({}, "no head is removed"),
    "chunk_size_feed_forward": (0, "the MLP works on all tokens at once"),
}
"""Keys that have one value in every family, and why."""

SIZE_KEYS: Mapping[str, str] = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "ffn": "intermediate_size",
    "heads": "num_attention_heads",
    "vocabulary": "vocab_size",
}
"""Numbers that every file has to state."""

WITHOUT_EFFECT = frozenset(
    (
        *("_name_or_path", "architectures", "bad_words_ids", "begin_suppress_tokens"),
        "cache_implementation",
        *("bos_token_id", "decoder_start_token_id", "diversity_penalty", "do_sample"),
        *("early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id"),
        *("exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id"),
        *("forced_eos_token_id", "id2label", "initializer_range", "is_decoder", "label2id"),
        *("length_penalty", "max_length", "max_sequence_length", "min_length", "model_type"),
        *("no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences"),
        *("output_attentions", "output_hidden_states", "output_scores", "pad_token_id", "prefix"),
        *("problem_type", "remove_invalid_values", "repetition_penalty", "return_dict"),
        *("return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params"),
        *("temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "top_k"),
        "top_p",
        *("torchscript", "transformers_version", "typical_p", "unk_token_id", "use_bfloat16"),
        "use_cache",
    )
)
"""Keys that say how to generate text or where a file comes from, not what the model computes."""

KEYS_SHOWN = 10
"""Keys that a message names."""

COUNTS = (
    *SIZE_KEYS.values(),
    *("num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window"),
    "original_max_position_embeddings",
)
"""Keys whose values are whole numbers above 0."""

_READ = frozenset(
    (
        *COUNTS,
        *ROPE_KEYS,
        *WINDOW_KEYS,
        *("rms_norm_eps", "tie_word_embeddings", "dtype", "torch_dtype"),
    )
)


def refuse_keys(stated: Mapping[str, Any], fixed: FixedKeys, own: Collection[str]) -> None:
    """Refuse a config by the keys that stand in it with a value; `fixed` are those that have one
    value in its family, `own` those that only its family reads."""
    every = {**FIXED, **fixed}
    for key, (value, reason) in every.items():
        if stated.get(key, value) != value:
            raise ShapeError(
                f"{key} is {shown(stated[key])}, which is not supported: {reason}",
                hint=f"only models with {key} = {value!r} can be loaded",
            )
    for key in COUNTS:
        most = MOST_MODEL_LAYERS if key == SIZE_KEYS["layers"] else LARGEST_OF_MODEL
        refuse_count(key, stated.get(key, 1), most)
    missing = [key for key in SIZE_KEYS.values() if key not in stated]
    if missing:
        raise ShapeError(f"config.json has no {', '.join(missing)}", hint="add it")
    unknown = sorted(set(stated) - _READ - WITHOUT_EFFECT - set(every) - set(own))
    if unknown:
        raise ShapeError(
            f"config.json has keys that are not known: {_listed(unknown)}",
            hint="remove a key if it does not change what the model computes",
        )


def _listed(keys: list[str]) -> str:
    """Some keys, as far as they fit into a message."""
    more = [f"and {len(keys) - KEYS_SHOWN} more"] if len(keys) > KEYS_SHOWN else []
    return ", ".join([*(shown(key)[1:-1] for key in keys[:KEYS_SHOWN]), *more])
