"""How tokens choose among the experts of a layer: the numbers of a mixture-of-experts model.

A layer has several MLPs, its experts. A router scores all of them for each token, and the token
goes to the few with the largest scores: a model has many weights, of which a token meets some.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from penstock.arch.limits import LARGEST_OF_MODEL, refuse_count
from penstock.errors import ShapeError, nearest, shown

MixtureFamily = Literal["mixtral", "qwen3_moe"]
MIXTURE_FAMILIES: tuple[MixtureFamily, ...] = get_args(MixtureFamily)


@dataclass(frozen=True)
class ExpertMixture:
    """The experts of every layer."""

    experts: int
    """Experts of a layer; each is an MLP of width `ffn`."""
    per_token: int
    """Experts that a token goes to."""
    renormalised: bool = True
    """Whether the weights of the chosen experts are divided by their sum."""
    balance: float = 0.0
    """What the auxiliary loss weighs, which keeps experts equally busy; 0: there is none."""
    family: MixtureFamily = "mixtral"
    """Whose names the matrices have in checkpoints: mixtral or qwen3_moe."""

    def __post_init__(self) -> None:
        refuse_count("experts", self.experts, LARGEST_OF_MODEL)
        refuse_count("per_token", self.per_token, LARGEST_OF_MODEL)
        if self.per_token > self.experts:
            raise ShapeError(
                f"a token goes to {self.per_token} of {self.experts} experts",
                hint="per_token is at most experts",
            )
        if not isinstance(self.balance, int | float) or not 0 <= self.balance < float("inf"):
            raise ShapeError(f"balance is {shown(self.balance)}", hint="give 0 or a number above")
        if self.family not in MIXTURE_FAMILIES:
            raise ShapeError(
                f"no family with experts is called {shown(self.family)}",
                hint=nearest(self.family, list(MIXTURE_FAMILIES)),
            )

    @property
    def held(self) -> int:
        """Experts whose weights a rank has."""
        return self.experts


@dataclass(frozen=True)
class SharedMixture(ExpertMixture):
    """The same as one of several replicas has it that share the experts: some of their weights, on
    average as many tokens as before, and copies of those that came from others."""

    sharers: int = 1

    @property
    def held(self) -> int:
        """Of the replica that has most."""
        return -(-self.experts // self.sharers)


def share_experts(mixture: ExpertMixture, sharers: int) -> ExpertMixture:
    """A mixture of which each of some replicas has a part."""
    if sharers == 1:
        return mixture
    numbers = {each.name: getattr(mixture, each.name) for each in fields(ExpertMixture)}
    return SharedMixture(**numbers, sharers=sharers)


_USUAL: Mapping[str, object] = {"gated": True, "activation": "silu", "norms": "before"}
"""What layers with experts are beside: none of the families has another."""
_INSIDE = ("gate_proj", "up_proj", "down_proj")
"""Matrices of an MLP that may have adapters, where it is the only one of its layer."""


def refuse_beside_experts(model: Any) -> None:
    """Refuse parts of a configuration that layers with experts do not have."""
    for name, usual in _USUAL.items():
        if (value := getattr(model, name)) != usual:
            raise ShapeError(
                f"{name} is {shown(value)}, but the model has experts",
                hint=f"layers with experts have {name} = {usual!r}",
            )
    targets = model.lora.targets if model.lora is not None else ()
    if inside := [name for name in _INSIDE if name in targets]:
        raise ShapeError(
            f"LoRA has the targets {', '.join(inside)}, but the model has experts, which have no "
            "adapters",
            hint='give targets of attention alone, as ["q_proj", "k_proj", "v_proj", "o_proj"]',
        )
