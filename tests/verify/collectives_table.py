"""Every place of the code where the ranks of a cell do something together, by kind of cell."""

from typing import Any, NamedTuple

TENSOR, ULYSSES, RING = ("tensor",), ("ulysses",), ("ring",)


class Collective(NamedTuple):
    """A place where ranks do something together."""

    text: str
    where: str
    how: str
    group: Any = TENSOR
    turn: int = 0
    """Its number among calls of one kind in one function."""


def holders(*among: range) -> tuple[object, ...]:
    return ("holders", *among)


HEAD = (
    Collective("largest logit", "_softmax", "take_largest"),
    Collective("exponentials and logit of the label", "_softmax", "add_up"),
)
LOSS = Collective("loss and norm", "Engine._add_up", "add_up", "world")
EVALUATED_LOSS = Collective("loss", "Engine.evaluate", "add_up", "world")
COPIES = Collective("gradients of copies", "ReplicatedOptimizer.reduce", "add_up", "copies")
OWNED_SUM = Collective("sums for owners (Z)", "OptimizerShards.reduce", "scatter_sum", "copies")
WHOLE_GRADIENT = Collective(
    "gradients of all owners", "OptimizerShards._complete", "gather", "copies"
)
LABELS = Collective("labels that count", "count_labels", "add_up", ("replica",))
PARTS_IN_TWO = Collective("gradients of norms", "StageEnd.reduce", "add_up", holders(range(2)))
EXCHANGES_FORWARD = (
    Collective("heads for tokens", "HeadExchange.to_heads", "exchange", ULYSSES),
    Collective("output for tokens", "HeadExchange.to_tokens", "exchange", ULYSSES),
)
EXCHANGES = (
    *EXCHANGES_FORWARD,
    Collective(
        "gradient of the output", "HeadExchange.output_gradient_to_heads", "exchange", ULYSSES
    ),
    Collective("gradients of heads", "HeadExchange.gradients_to_tokens", "exchange", ULYSSES),
)


def forward_of(sum_by: str) -> tuple[Collective, ...]:
    """Sums of the forward, done by that call."""
    return (
        Collective("embedding", "TokenEmbedding.forward", sum_by),
        Collective("behind o", "PostAttention.forward", sum_by),
        Collective("behind down", "MlpBlock.forward", sum_by),
    )


PAST_ATTENTION = Collective("what went past attention", "taken_over", "gather")


def backward_of(sum_by: str, attention: str) -> tuple[Collective, ...]:
    """Sums of the backward; those in front of attention are in that function."""
    return (
        Collective("gradient of the head's input", "OutputLayer._through_head", sum_by),
        Collective("gradient of the MLP's input", "MlpBlock.backward", sum_by),
        Collective("gradient of attention's input", f"{attention}.backward", sum_by),
    )


def gathers_forward(attention: str) -> tuple[Collective, ...]:
    return (
        Collective("in front of q, k, v", f"{attention}.forward", "gather"),
        Collective("in front of gate and up", "MlpBlock.forward", "gather"),
    )


def gathers_backward(attention: str) -> tuple[Collective, ...]:
    return (
        Collective("in front of the head", "OutputLayer._through_head", "gather"),
        Collective("gradient of the layer's output", "MlpBlock.backward", "gather"),
        Collective("the MLP's input again", "MlpBlock.backward", "gather", TENSOR, 1),
        Collective("gradient behind attention", "PostAttention.backward", "gather"),
        Collective("attention's input again", f"{attention}.backward", "gather"),
        Collective("gradient of the embedding's rows", "TokenEmbedding.backward", "gather"),
    )


TABLE: dict[str, tuple[Collective, ...]] = {
    "scattered": (
        *forward_of("scatter_sum"),
        *gathers_forward("SelfAttention"),
        *HEAD,
        *backward_of("scatter_sum", "SelfAttention"),
        *gathers_backward("SelfAttention"),
        Collective("gradients of norms", "StageEnd.reduce", "add_up", holders(range(3))),
        Collective(
            "gradients of key/value heads",
            "StageEnd.reduce",
            "add_up",
            holders(range(1), range(1, 3)),
        ),
        LOSS,
    ),
    "replicated": (
        *forward_of("add_up"),
        *HEAD,
        *backward_of("add_up", "SelfAttention"),
        Collective("input of a stage", "DecoderStage._first_input", "gather"),
        Collective("gradient of a stage's output", "DecoderStage._output_gradient", "gather"),
        PARTS_IN_TWO._replace(text="gradients of norms of heads"),
        LOSS,
    ),
    "ulysses": (*EXCHANGES, COPIES, LOSS),
    "ring": (
        Collective("keys and values", "ring_forward", "pass_on", RING),
        Collective("keys and values again", "ring_backward", "pass_on", RING),
        Collective("keys and values further on", "ring_backward", "pass_on", RING, 1),
        Collective("gradients of keys and values", "ring_backward", "pass_on", RING, 2),
        COPIES,
        LOSS,
    ),
    "replicas": (LABELS, COPIES, LOSS),
    "owners": (
        Collective("values of all owners", "OptimizerShards.gather", "gather", "copies"),
        LABELS,
        OWNED_SUM,
        WHOLE_GRADIENT,
        LOSS,
    ),
    "full": (
        Collective("weights of a stage (G)", "FullShards.fetch", "gather", "copies"),
        *EXCHANGES,
        OWNED_SUM,
        WHOLE_GRADIENT,
        LOSS,
    ),
    "attention": (
        *forward_of("scatter_sum"),
        *gathers_forward("PreAttention"),
        *EXCHANGES,
        *HEAD,
        *backward_of("scatter_sum", "PreAttention"),
        *gathers_backward("PreAttention"),
        PARTS_IN_TWO,
        COPIES,
        LOSS,
    ),
    "attention, replicated": (
        *forward_of("add_up"),
        *HEAD,
        *backward_of("add_up", "PreAttention"),
        PAST_ATTENTION,
        PARTS_IN_TWO._replace(text="gradients of norms of heads"),
        LOSS,
    ),
    "weights sent, replicated": (
        *forward_of("add_up"),
        *HEAD,
        *backward_of("add_up", "PreAttention")[:-1],
        Collective(
            "gradient of attention's input",
            "ProjectingAttentionStage._projection_gradient",
            "add_up",
        ),
        PAST_ATTENTION,
        PARTS_IN_TWO._replace(text="gradients of norms of heads"),
        LOSS,
    ),
    "evaluation": (
        *forward_of("scatter_sum"),
        *gathers_forward("SelfAttention"),
        Collective("in front of the head", "OutputLayer.loss", "gather"),
        *HEAD,
        EVALUATED_LOSS,
    ),
    "evaluation, replicated": (
        *forward_of("add_up"),
        Collective("input of a stage", "DecoderStage._first_input", "gather"),
        *HEAD,
        EVALUATED_LOSS,
    ),
}
