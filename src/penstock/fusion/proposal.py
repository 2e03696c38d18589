"""What is proposed for a model: which attentions go, and which runs of MLPs are fused.

First every attention is left out alone, and what the loss grows by is its score. With a budget of
attentions, the scores of those that go are least. Then dependencies are measured of the model that
is left, and runs are taken where all of them are low.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.fusion.alternatives import Alternative, choose
from penstock.fusion.dependency import Dependencies, measure_dependencies
from penstock.fusion.fused_layers import Apart, TensorsByName, fuse_tensors_of
from penstock.fusion.fusion_plan import FusionPlan, NormMode, fused_model, without_attention
from penstock.fusion.residual_stream import ResidualStream, mean_loss
from penstock.fusion.residual_stream import Sequence as Calibration
from penstock.fusion.selection import fusable_runs

PassesDone = Callable[[int], None]


@dataclass(frozen=True)
class FusionRequest:
    """What a proposal is asked for."""

    attentions: int | None = None
    """Attentions that are left at most; None: all that there are."""
    limit: float = 0.1
    """Dependency up to which blocks may read the same input."""
    most: int | None = None
    """Columns of a fused MLP at most; None: any."""
    norm: NormMode = "last"
    multiple: int = 1


@dataclass(frozen=True, eq=False)
class FusionProposal:
    """A plan and what it follows from."""

    plan: FusionPlan
    scores: dict[int, float]
    """What the loss grows by without the attention of each layer alone."""
    dependencies: Dependencies
    """Of the model without the attentions that go."""


def attention_scores(
    stream: ResidualStream, data: Sequence[Calibration], progress: PassesDone
) -> dict[int, float]:
    """What the loss grows by where the attention of one layer is left out, for each that has."""
    model = stream.model
    layers = range(model.layers)
    total = dict.fromkeys(model.attending(layers), 0.0)
    for sequence in data:
        x = stream.first(sequence)
        intact = stream.loss(stream.through(layers, x, sequence), sequence)
        for layer in layers:
            if layer in total:
                y = stream.mlp_alone(layer, x, sequence)
                y = stream.through(layers[layer + 1 :], y, sequence)
                total[layer] += stream.loss(y, sequence) - intact
            x = stream.block(layer, x, sequence)
            progress(1)
    labels = sum(sequence.labels for sequence in data)
    return {layer: found / labels for layer, found in total.items()}


def removed_attentions(
    model: ModelConfig, scores: dict[int, float], attentions: int | None
) -> tuple[int, ...]:
    """The layers whose attention goes, so that so many are left at most."""
    if attentions is None or attentions >= len(scores):
        return ()
    library = [
        [Alternative("kept", 0.0, (1.0,)), Alternative("gone", scores[layer], (0.0,))]
        for layer in scores
    ]
    chosen = choose(library, (float(attentions),))
    return tuple(layer for layer, each in zip(scores, chosen) if each.name == "gone")


def propose(
    model: ModelConfig,
    tensors: TensorsByName,
    data: Sequence[Calibration],
    wanted: FusionRequest,
    progress: PassesDone = lambda passes: None,
) -> FusionProposal:
    """A plan for a model, by its dependencies on some data."""
    length = max(sequence.piece.length for sequence in data)
    stream = ResidualStream(model, tensors, length)
    scores = {} if wanted.attentions is None else attention_scores(stream, data, progress)
    remove = removed_attentions(model, scores, wanted.attentions)
    measured = measure_plan(model, tensors, data, FusionPlan(remove), progress).dependencies
    left = without_attention(model, remove)
    blocks = [left.block(layer) for layer in range(left.layers)]
    attends = [block.attention or bool(block.fused) for block in blocks]
    widths = [block.ffn for block in blocks]
    runs = fusable_runs(measured.matrix, attends, wanted.limit, widths, wanted.most)
    plan = FusionPlan(remove, tuple(runs), wanted.norm, wanted.multiple)
    return FusionProposal(plan, scores, measured)


def measure_plan(
    model: ModelConfig,
    tensors: TensorsByName,
    data: Sequence[Calibration],
    plan: FusionPlan,
    progress: PassesDone = lambda passes: None,
) -> FusionProposal:
    """A plan that is given, with the dependencies of the model without the attentions that go."""
    length = max(sequence.piece.length for sequence in data)
    left = without_attention(model, plan.remove)
    found = measure_dependencies(ResidualStream(left, tensors, length), data, progress)
    return FusionProposal(plan, {}, found)


@dataclass(frozen=True)
class PlanLosses:
    """The loss of a label on average, of a model and of what a plan makes of it."""

    given: float
    removed: float
    """Without the attentions that go."""
    reversed: float
    """With each run in reverse order too, which is about as good where a run can be fused."""
    fused: float


def plan_losses(
    model: ModelConfig, tensors: TensorsByName, plan: FusionPlan, data: Sequence[Calibration]
) -> PlanLosses:
    """What a plan does to the loss."""
    length = max(sequence.piece.length for sequence in data)
    left = without_attention(model, plan.remove)
    stream = ResidualStream(left, tensors, length)
    order = [*range(left.layers)]
    for run in plan.fuse:
        order[run.start : run.stop] = reversed(run)
    fused = ResidualStream(fused_model(model, plan), fused_tensors(model, plan, tensors), length)
    return PlanLosses(
        mean_loss(ResidualStream(model, tensors, length), data),
        mean_loss(stream, data),
        mean_loss(stream, data, order),
        mean_loss(fused, data),
    )


def fused_tensors(model: ModelConfig, plan: FusionPlan, tensors: TensorsByName) -> TensorsByName:
    """The tensors of the fused model."""

    def read(names: Sequence[str]) -> dict[str, Tensor]:
        return {name: tensors[name] for name in names}

    found = fuse_tensors_of(model, plan, read)
    return dict(each for each in found if not isinstance(each, Apart))
