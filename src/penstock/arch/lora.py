"""LoRA: which matrices of a model are trained through two small ones, while they stay as they are.

A matrix W [outputs, inputs] has an adapter of rank r: A [r, inputs] and B [outputs, r]. Its product
is x W^T + scale (x A^T) B^T, with scale = alpha / r. Only A and B are trained, r (outputs + inputs)
elements; W, norms, biases and embeddings are frozen. Source: arXiv:2106.09685.

    W     frozen: values alone, in the type that is computed in
    A B   trained: values, gradients, main weights and two moments
"""

from dataclasses import dataclass
from math import isfinite

from penstock.errors import ShapeError, nearest

LAYER_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Matrices of a layer that may have adapters, as Hugging Face calls them."""
HEAD_TARGET = "lm_head"
TARGETS = (*LAYER_TARGETS, HEAD_TARGET)
"""All matrices that may have adapters."""
DOWN, UP = "lora_A", "lora_B"
"""What PEFT calls the two matrices of an adapter."""


@dataclass(frozen=True)
class Lora:
    """Adapters of one rank on the matrices of these names, in every layer and behind the last."""

    rank: int
    alpha: float = 16.0
    targets: tuple[str, ...] = LAYER_TARGETS

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ShapeError(f"the rank of LoRA is {self.rank}", hint="give 1 or more")
        if not (isfinite(self.alpha) and self.alpha > 0):
            raise ShapeError(f"alpha of LoRA is {self.alpha}", hint="give a number above 0")
        if not self.targets:
            raise ShapeError(
                "LoRA has no targets, so nothing would be trained",
                hint=f"name some of: {', '.join(TARGETS)}",
            )
        for target in self.targets:
            if target not in TARGETS:
                raise ShapeError(
                    f"LoRA has no target {target!r}", hint=nearest(target, list(TARGETS))
                )
        if len({*self.targets}) < len(self.targets):
            raise ShapeError(
                f"LoRA has a target twice: {', '.join(self.targets)}", hint="name each once"
            )

    def __str__(self) -> str:
        return f"rank {self.rank}, alpha {self.alpha:g}, on {', '.join(self.targets)}"

    @property
    def scale(self) -> float:
        """What the product of an adapter is multiplied by.

        >>> Lora(8, 16.0).scale
        2.0
        """
        return self.alpha / self.rank

    def targets_matrix(self, name: str) -> bool:
        """Whether the parameter of that name has an adapter.

        >>> Lora(8, targets=("q_proj",)).targets_matrix("self_attn.q_proj.weight")
        True
        """
        module, _, kind = name.rpartition(".")
        return kind == "weight" and module.rpartition(".")[2] in self.targets


def refuse_tied_target(tied: bool, lora: Lora | None) -> None:
    """Refuse an adapter of a head that is the embedding too: merged, it would change that."""
    if tied and lora is not None and HEAD_TARGET in lora.targets:
        raise ShapeError(
            f"LoRA has the target {HEAD_TARGET}, but the head is tied to the embedding",
            hint=f"leave {HEAD_TARGET} out of the targets",
        )


def refuse_sharded_target(lora: Lora | None, on_shards: bool) -> None:
    """Refuse an adapter of a head whose words are on all devices: its A would be on all of them."""
    if on_shards and lora is not None and HEAD_TARGET in lora.targets:
        raise ShapeError(
            f"LoRA has the target {HEAD_TARGET}, but the head is on shards of all devices",
            hint=f"leave {HEAD_TARGET} out of the targets, or take a schedule without vocabulary "
            "passes S and T",
        )


def adapter_names(module: str) -> tuple[str, str]:
    """Names of both matrices of the adapter of a module.

    >>> adapter_names("mlp.up_proj")
    ('mlp.up_proj.lora_A.weight', 'mlp.up_proj.lora_B.weight')
    """
    return f"{module}.{DOWN}.weight", f"{module}.{UP}.weight"
