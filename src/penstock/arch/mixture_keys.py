"""Experts as `config.json` states them, which each family does in its own way.

    mixtral      "num_local_experts"; "intermediate_size" is the width of an expert; the weights of
                 chosen experts are always divided by their sum
    qwen3_moe    "num_experts"; "moe_intermediate_size" is the width; "norm_topk_prob" says whether

In both the auxiliary loss is a part of the loss where "output_router_logits" is true.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.arch.mixture import ExpertMixture, MixtureFamily
from penstock.errors import ShapeError, shown

_BALANCE, _SWITCH, _CHOSEN = "router_aux_loss_coef", "output_router_logits", "num_experts_per_tok"


@dataclass(frozen=True)
class MixtureKeys:
    """The keys of one family."""

    family: MixtureFamily
    experts: tuple[str, ...]
    """Of the number of experts; the first one is written."""
    width: str = ""
    """Of the width of an expert, where that is not the usual one."""
    renormalised: str = ""
    """Of whether weights are divided by their sum, where that is not always so."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        own = (self.width, self.renormalised)
        return (*self.experts, *filter(None, own), _BALANCE, _SWITCH, _CHOSEN)

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a model that they are, of the values of a file and the family's defaults
        for what it leaves out; a later name for the number of experts is taken where it stands."""
        for key in (_SWITCH, *filter(None, (self.renormalised,))):
            if not isinstance(values[key], bool):
                raise ShapeError(f"{key} is {shown(values[key])}", hint="give true or false")
        experts = next(values[key] for key in reversed(self.experts) if key in values)
        renormalised = values[self.renormalised] if self.renormalised else True
        balance = values[_BALANCE] if values[_SWITCH] else 0.0
        mixture = ExpertMixture(experts, values[_CHOSEN], renormalised, balance, self.family)
        return {"mixture": mixture} | ({"ffn": values[self.width]} if self.width else {})

    def write(self, ffn: int, mixture: ExpertMixture) -> dict[str, Any]:
        """The keys of a model."""
        if not mixture.renormalised and not self.renormalised:
            raise ShapeError(
                f"files of model_type {self.family!r} cannot state that the weights of experts are "
                "not divided by their sum",
                hint="set renormalised to true, or family to qwen3_moe",
            )
        balance = {_BALANCE: mixture.balance} if mixture.balance else {}
        own = {self.width: ffn, self.renormalised: mixture.renormalised}
        return {
            self.experts[0]: mixture.experts,
            _CHOSEN: mixture.per_token,
            _SWITCH: mixture.balance > 0,
            **balance,
            **{key: value for key, value in own.items() if key},
        }


MIXTRAL = MixtureKeys("mixtral", ("num_local_experts",))
QWEN3_MOE = MixtureKeys(
    "qwen3_moe",
    ("num_experts", "num_local_experts"),
    width="moe_intermediate_size",
    renormalised="norm_topk_prob",
)
ROUTER_DEFAULTS: Mapping[str, Any] = {_BALANCE: 0.001, _SWITCH: False}
"""Of keys that files of either family may leave out."""
