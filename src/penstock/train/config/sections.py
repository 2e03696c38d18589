"""Everything a training run is told, section by section.

Each class is a section of the configuration file and each field a key of it, with its type, range
and default and, below it, its meaning; the reference page and the schema for editors are made from
these. What cannot be right is refused when the settings are made, before a process starts.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from penstock.arch.mesh_shape import AXES, MeshAxis, MeshShape, refuse_shard
from penstock.schedules import registry
from penstock.train.config.fields import (
    Count,
    Factor,
    MisfitError,
    Natural,
    NotNegative,
    Positive,
    Section,
    Share,
    fit_value,
)

MOST_THREADS = 1024
"""More than any machine has cores for; torch ends a process that cannot start its threads."""


class RunSettings(Section):
    """How long, with which numbers, and where the run is kept."""

    directory: str = "runs/unnamed"
    """Folder for checkpoints, metrics and reports; `runs/NAME` for a file `NAME.toml`."""
    seed: Natural = 0
    """Seed of all random numbers: initial weights, order of the data."""
    steps: Count = 1000
    """Optimizer steps of the whole run, those before a restart included."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """Type of the computation; weights and gradients are kept in 32 bits or more."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; `auto` uses GPUs if there are any."""
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] = 1
    """CPU threads of each process."""

    @model_validator(mode="after")
    def _refuse_directory(self) -> Self:
        if not self.directory:
            raise MisfitError(f"directory is {self.directory!r}", hint="name a folder")
        return self


class BatchSettings(Section):
    """The data of one optimizer step."""

    length: Count = 1024
    """Tokens of a sequence."""
    rows: Count = 1
    """Sequences side by side in a microbatch: the micro-batch size."""
    microbatches: Count = 4
    """Microbatches of one replica in one step; their gradients are added up."""
    tokens: Natural = 0
    """Tokens of a global batch at most, padding apart: as many of the next sequences are taken as
    fit. 0 always takes `rows` sequences for each microbatch of each replica."""

    @model_validator(mode="after")
    def _refuse_tokens(self) -> Self:
        if self.tokens and self.tokens < self.length:
            raise MisfitError(
                f"tokens is {self.tokens}, but a sequence may have {self.length} (length)",
                hint="give at least as many tokens as a sequence has, or 0",
            )
        return self


def _offer_schedules(schema: dict[str, Any]) -> None:
    """A schedule is a registered name or a file: editors offer the names and take both."""
    schema["anyOf"] = [{"enum": list(registry())}, {"type": "string"}]


class PipelineSettings(Section):
    """How the model is divided over the processes, and in which order they work."""

    schedule: str = Field(json_schema_extra=_offer_schedules)
    """A name from `penstock list`, or the path of a schedule file."""
    devices: Natural = 0
    """Pipeline devices; 0 uses all processes, divided by the sizes of the mesh."""
    chunks: Natural = 0
    """Stages of each device (virtual stages); 0 uses the default of the schedule."""
    slices: Count = 1
    """Slices of each sequence."""
    cut: Literal["even", "equal-flops"] | tuple[Count, ...] = "equal-flops"
    """Slices of equal length, of equal work, or of these lengths in tokens."""
    layers: tuple[Natural, ...] = ()
    """Layers of each stage; empty uses the split that the schedule is made for, such as one from
    `penstock best`, and otherwise divides them as evenly as possible."""
    recompute: Literal["none", "all", "without-attention"] | tuple[Natural, ...] = "none"
    """Forwards that keep only their input and run again: none, all, those of these stages, or all
    without attention, where a schedule has that as a stage of its own."""
    keep_slices: Natural = 0
    """With `recompute = "all"`: this many last slices of each sequence keep their activations."""
    vocabulary: Literal["ends", "shards"] = "ends"
    """Where embedding and head are: on the first and on the last stage, or in shards on all
    devices."""
    offload: Literal["none", "all"] | tuple[Natural, ...] = "none"
    """Activations that wait for their backward on the host: none, all, or those of these stages."""
    options: Mapping[str, int | float | str] = {}
    """Options of the schedule, as `-o` of `penstock show` gives them."""

    @model_validator(mode="after")
    def _refuse_misfits(self) -> Self:
        if not self.schedule:
            raise MisfitError("schedule is empty", hint="see `penstock list`")
        if not isinstance(self.cut, str) and len(self.cut) != self.slices:
            raise MisfitError(
                f"cut gives {len(self.cut)} lengths for {self.slices} slices",
                hint=f"set slices to {len(self.cut)}, or give {self.slices} lengths",
            )
        if self.keep_slices and self.recompute != "all":
            raise MisfitError(
                f"keep_slices is {self.keep_slices}, but recompute is not 'all'",
                hint="leave keep_slices out, or recompute all",
            )
        return self


class MeshSettings(Section):
    """How processes share data, tokens and matrices, in addition to the pipeline."""

    tensor: Count = 1
    """Ranks of each device that share its matrices (tensor parallelism)."""
    sequence: Count = 1
    """Ranks of each device that share the tokens of each slice (Ulysses, context parallelism)."""
    ring: Count = 1
    """Ranks that pass keys and values round; among each `sequence / ring` heads are exchanged. 1
    exchanges heads only (Ulysses), the number of `sequence` only passes round (ring attention)."""
    replicas: Count = 1
    """Copies of the whole pipeline, each with its own share of the data."""
    experts: Count = 1
    """Replicas that share the experts of each layer (expert parallelism): a divisor of
    `replicas`; 1: every replica has all of them. Not with `mesh.shard`."""
    norms: Literal["scattered", "replicated"] = "scattered"
    """What tensor ranks hold between the blocks of a layer: their share of the tokens, or all of
    them."""
    shard: Literal["none", "optimizer", "full"] = "none"
    """What is divided over the ranks that hold the same weights: nothing, main weights and moments
    of the optimizer, or weights and gradients too (full), which are gathered when needed."""
    shard_ranks: Natural = 0
    """Ranks that divide it among themselves, as those of one machine; each such group has
    everything. 0 stands for all ranks that hold the same weights."""
    compare_every: Natural = 0
    """Steps after which ranks that hold the same weights compare them bit by bit; 0 compares them
    with each checkpoint only."""
    order: tuple[MeshAxis, ...] = AXES
    """Axes from the slowest to the fastest over ranks; those that talk most should come last, so
    that they are on one machine."""

    @model_validator(mode="after")
    def _refuse_shape(self) -> Self:
        fit_value(self, lambda mesh: mesh.shape)
        return self

    @property
    def shape(self) -> MeshShape:
        """The numbers alone."""
        sizes = (self.replicas, self.sequence, self.ring, self.tensor)
        mesh = MeshShape(*sizes, self.order, self.norms, self.experts)
        refuse_shard(mesh, self.shard)
        return mesh


class OptimizerSettings(Section):
    """AdamW and its learning rate."""

    learning_rate: Positive = 3e-4
    """Highest learning rate."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """Decay rates of the two moments of AdamW (beta1 and beta2)."""
    epsilon: Positive = 1e-8
    """Epsilon of AdamW: added to the root of the second moment."""
    weight_decay: NotNegative = 0.1
    """Weight decay of AdamW; it is not applied to norms and biases."""
    clip: NotNegative = 1.0
    """Gradients are clipped to this global norm; 0 never clips."""
    validation: Literal["before", "after"] = "before"
    """When the global norm is looked at: before weights are updated, which waits for all stages, or
    after, while the next step begins; then a wrong update is taken back. Results are the same."""
    host_stages: Literal["none", "deep", "all"] | tuple[Natural, ...] = "none"
    """Stages whose moments and main weights are kept on the host and updated there: none, the
    second half of the model (deep), all, or these. Not with `mesh.shard`."""
    schedule: Literal["constant", "cosine", "wsd"] = "cosine"
    """After the warm-up: the same learning rate, a half cosine, or a stable phase and a linear
    decay."""
    warmup_steps: Natural = 0
    """Steps over which the learning rate rises to its highest."""
    decay_steps: Natural = 0
    """With `wsd`: steps over which the learning rate falls at the end."""
    minimum_factor: Factor = 0.1
    """Learning rate of the last step of `cosine` and `wsd`, as a share of the highest."""
    schedule_steps: Natural = 0
    """Steps over which the learning rate is planned; after them it stays constant. 0 uses
    `run.steps` of the first start: a run that is continued to more steps keeps its curve."""

    @model_validator(mode="after")
    def _refuse_decay(self) -> Self:
        if (self.schedule == "wsd") != (self.decay_steps > 0):
            raise MisfitError(
                f"decay_steps is {self.decay_steps} and schedule is {self.schedule!r}",
                hint='give decay_steps 1 or more with schedule = "wsd", and none otherwise',
            )
        return self


class EvaluationSettings(Section):
    """How often the loss on held-out data is measured."""

    every: Natural = 0
    """Steps between evaluations; 0 never evaluates."""
    batches: Count = 8
    """Global batches of held-out data in each; fewer where there are not so many."""


class CheckpointSettings(Section):
    """What is saved to resume from, and to use elsewhere."""

    every: Natural = 100
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: Count = 2
    """Newest checkpoints that are kept."""
    export: str = ""
    """Folder for the final weights as safetensors, with their `config.json` and all other files of
    the Hugging Face folder that the run began with; empty exports none."""
    export_dtype: Literal["auto", "float32", "float64", "bfloat16", "float16"] = "auto"
    """Type of the exported weights; `auto` uses the type of the Hugging Face folder that the run
    began with, or else `run.dtype`. Adapters are in 32 bits or more unless one is given."""
    resume: str = "auto"
    """`auto` continues from the run's newest complete checkpoint, `never` starts from the
    beginning. With the path of a folder of checkpoints, a run that has none of its own begins
    with the newest one there."""

    @model_validator(mode="after")
    def _refuse_resume(self) -> Self:
        if not self.resume:
            raise MisfitError("resume is empty", hint='give "auto", "never" or the path of one')
        return self


class LogSettings(Section):
    """What is shown and recorded besides `metrics.jsonl` and `timing.jsonl`."""

    every: Count = 10
    """Steps between lines on a console that is not a terminal."""
    tensorboard: bool = False
    """Whether TensorBoard files are written too, into `tensorboard` of the run's folder."""
    wandb: str = ""
    """Weights & Biases project to report to; empty reports to none."""
    report: bool = True
    """Whether the run ends with three more steps that are measured, and a report."""
    compare: tuple[str, ...] = ()
    """Schedules without slices whose time and memory the report compares with the run's."""


class WatchSettings(Section):
    """When a process is considered lost."""

    patience: Positive = 60.0
    """Seconds without a heartbeat after which a process is named and the run ends."""
    frozen: Positive = 3.5
    """The same for a process that is stopped or gone, or, on another machine, silent for three
    times as long as ever before within a step."""
    heartbeat: Positive = 0.5
    """Seconds between the heartbeats of each process."""
    stuck: Positive = 600.0
    """Seconds without progress, while others wait for it, after which a process is named as
    stuck."""

    @model_validator(mode="after")
    def _refuse_patience(self) -> Self:
        for name, seconds in (("patience", self.patience), ("frozen", self.frozen)):
            if 2 * self.heartbeat > seconds:
                raise MisfitError(
                    f"heartbeat is {self.heartbeat} s and {name} {seconds} s: one that is late "
                    "would end the run",
                    hint=f"give {name} at least twice the heartbeat",
                )
        return self
