"""A layout as it is asked for: a model, a cluster, and how the one lies on the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, lcm
from typing import Literal, get_args

from penstock.arch.config import ModelConfig
from penstock.arch.limits import refuse_count
from penstock.arch.mesh_shape import MeshShape, refuse_misfits, refuse_unpriced
from penstock.cluster.cluster import Cluster
from penstock.cluster.gpu import KEEP_SCORES, AttentionKernel, Precision
from penstock.cost.copies import Shard
from penstock.errors import ShapeError

MicrobatchSlices = tuple[Fraction, ...]
Offload = Literal["none", "all"]
OFFLOADS: tuple[Offload, ...] = get_args(Offload)
BYTES_OF: dict[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
LONGEST_SEQUENCE = 1 << 30
MOST_OPS = 1 << 20
"""Ops of a step; more would be simulated for minutes."""
ALL_LAYERS = 1 << 30
WITHOUT_ATTENTION = "without-attention"


@dataclass(frozen=True)
class Recompute:
    """What keeps only its input: no layer, all layers, some of each stage, or `stages` as a whole,
    as a run does it. `selective` computes attention alone again, whose probabilities only attention
    that is not fused keeps; `without-attention` all but attention, where that is a stage."""

    text: str = "none"

    @property
    def whole_stages(self) -> bool:
        """Whether each stage is computed again by an op of its own."""
        return self.text == "stages"

    @property
    def inside(self) -> bool:
        """Whether something is computed again in backwards, and not by ops of its own."""
        return self.text not in ("none", "stages", WITHOUT_ATTENTION)

    @property
    def layers(self) -> int:
        """Layers of each stage that are computed again in its backward, at most."""
        if self.text == "all":
            return ALL_LAYERS
        return int(self.text.removeprefix("layers=")) if "=" in self.text else 0


@dataclass(frozen=True)
class TrainingLayout:
    """What one estimate is of."""

    model: ModelConfig
    cluster: Cluster
    tokens: int
    """Of a sequence."""
    batch_tokens: int
    """Of all sequences of a step."""
    schedule: str
    mesh: MeshShape = field(default_factory=MeshShape)
    """Its replicas are those that the cluster has room for."""
    pipeline: int = 1
    """Devices of the schedule."""
    chunks: int | None = None
    slices: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    rows: int = 1
    recompute: Recompute = field(default_factory=Recompute)
    shard: Shard = "none"
    attention: AttentionKernel = "flash2"
    fused_norm: bool = True
    vocabulary: bool = False
    offload: Offload = "none"
    precision: Precision = "bf16"
    layers: tuple[int, ...] = ()
    """Of each stage; empty is as even as can be, or as the schedule is made for."""
    groups: MicrobatchSlices = ()
    """Length of each microbatch in slices of one size, of which a sequence of `tokens` has most;
    empty where all are as long."""

    def __post_init__(self) -> None:
        refuse_count("tokens", self.tokens, LONGEST_SEQUENCE)
        refuse_count("rows", self.rows, LONGEST_SEQUENCE)
        refuse_count("batch_tokens", self.batch_tokens, 1 << 50)
        refuse_misfits(self.model, self.mesh)
        refuse_unpriced(self.mesh)
        cell = {"sequence": self.mesh.sequence, "tensor": self.mesh.tensor}
        refuse_shared_tokens(self.model, cell)
        self._refuse_layers()
        self.model.refuse_length(self.tokens)
        self._refuse_ranks()
        self._refuse_batch()
        if self.offload == "all" and self.recompute.text != "none":
            raise ShapeError(
                f"activations are offloaded, but recompute is {self.recompute.text}",
                hint="take one of both: what is computed again is not kept",
            )
        plain = self.cluster.gpu.measured is None
        if plain and self.precision == "fp32" and self.attention not in KEEP_SCORES:
            raise ShapeError(
                f"the kernel {self.attention} does not compute in fp32",
                hint="take --attention unfused, or --precision bf16",
            )

    def _refuse_layers(self) -> None:
        if self.layers and sum(self.layers) != self.model.layers:
            raise ShapeError(
                f"stages of {', '.join(map(str, self.layers))} layers have {sum(self.layers)} in "
                f"all, the model {self.model.layers}",
                hint="give the layers of each stage along the model, or balanced",
            )

    def _refuse_ranks(self) -> None:
        ranks, gpus = self.mesh.ranks(self.pipeline), self.cluster.gpus
        if ranks != gpus:
            inside = ranks // self.mesh.replicas
            whole = gpus % inside == 0
            hint = f"set replicas to {gpus // inside}" if whole else "choose sizes that divide it"
            raise ShapeError(f"the mesh has {ranks} ranks, the cluster {gpus} GPUs", hint=hint)

    def _refuse_batch(self) -> None:
        """A batch is a whole number of microbatches on every replica."""
        if self.groups:
            self._refuse_groups()
        else:
            self._refuse_part()
        slices = sum(map(ceil, self.groups)) or self.microbatches * (self.slices or 1)
        ops = 2 * self.pipeline * (self.chunks or 1) * slices
        if ops > MOST_OPS:
            raise ShapeError(
                f"a step of {slices:,} pieces of work on {self.pipeline} devices has {ops:,} ops",
                hint=f"raise rows or replicas: at most {MOST_OPS:,} are simulated",
            )

    def _refuse_groups(self) -> None:
        """Slices are whole tokens, and the batch is what all sequences have together."""
        most, whole = max(self.groups), lcm(*(each.denominator for each in self.groups))
        several = most.numerator * whole // most.denominator
        if self.tokens % several:
            near = -(-self.tokens // several) * several
            raise ShapeError(
                f"{self.tokens:,} tokens in {most} slices do not leave each a whole number",
                hint=f"give {near:,} tokens, a multiple of {several}",
            )
        every = sum(map(sum, self.lengths)) * self.rows * self.mesh.replicas
        if self.batch_tokens != every:
            raise ShapeError(
                f"batch_tokens is {self.batch_tokens:,}, but sequences of {self.tokens:,} tokens "
                f"and parts of it have {every:,} together",
                hint=f"give {every:,}",
            )
        if self.model.subsampling is not None:
            raise ShapeError(
                "the model leaves out tokens, but sequences have unequal numbers of slices",
                hint="take a schedule that cuts all sequences alike",
            )
        if min(map(min, self.lengths)) < self.mesh.sequence:
            raise ShapeError(
                f"{self.mesh.sequence} ranks share slices of {min(map(min, self.lengths))} tokens",
                hint="give fewer slices, or lower sequence",
            )

    def _refuse_part(self) -> None:
        piece = self.tokens * self.rows * self.mesh.replicas
        if self.batch_tokens % piece:
            less = self.batch_tokens // piece * piece
            near = " or ".join(f"{each:,}" for each in (less, less + piece) if each)
            raise ShapeError(
                f"batch_tokens is {self.batch_tokens:,}, which is not a multiple of {piece:,}: "
                f"{self.tokens:,} tokens x {self.rows} rows x {self.mesh.replicas} replicas",
                hint=f"give {near}",
            )

    @property
    def attention_again(self) -> bool:
        """Whether attention alone is computed again, and keeps no probabilities until then."""
        return self.recompute.text == "selective" and self.attention in KEEP_SCORES

    @property
    def microbatches(self) -> int:
        """Of one replica."""
        count = self.batch_tokens // (self.tokens * self.rows * self.mesh.replicas)
        return len(self.groups) or count

    @property
    def lengths(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of the slices of each microbatch, where these are unequally long."""
        whole = int(self.tokens / max(self.groups)) if self.groups else 0
        counts = ((int(each * self.tokens / max(self.groups)), ceil(each)) for each in self.groups)
        return tuple((*[whole] * (n - 1), tokens - whole * (n - 1)) for tokens, n in counts)

    @property
    def copies(self) -> int:
        """Ranks that hold the same weights."""
        return self.mesh.replicas * self.mesh.sequence


def refuse_shared_tokens(model: ModelConfig, ranks: Mapping[str, int]) -> None:
    """Refuse a model that leaves out tokens where several ranks are a device, along an axis."""
    axis = next((each for each, size in ranks.items() if size > 1), None)
    if model.subsampling is not None and axis is not None:
        raise ShapeError(
            f"the model leaves out tokens, and {axis} is {ranks[axis]}: what ranks of a cell send "
            "each other is not counted for layers of fewer tokens",
            hint="leave sequence and tensor of the mesh at 1, and take pipeline and replicas",
        )
