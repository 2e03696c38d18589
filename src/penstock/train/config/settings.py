"""Everything a training run is told, section by section.

Each class is a section of the configuration file and each field a key of it, with its default and,
below it, its meaning; the reference page and the schema for editors are made from these texts. What
cannot be right is refused when the settings are made, before a process starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.data.settings import DataSettings
from penstock.errors import ShapeError
from penstock.train.config.keys import refuse_wrong
from penstock.train.config.kinds import Range
from penstock.train.config.model_settings import ModelSettings

Count = Annotated[int, Range(least=1)]
Natural = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(least=0, below=1)]


@dataclass(frozen=True)
class RunSettings:
    """How long, with which numbers, and where the run is kept."""

    directory: str = "runs/unnamed"
    """Folder for checkpoints, metrics and reports; `runs/NAME` for a file `NAME.toml`."""
    seed: Natural = 0
    """Start of every random number: initial weights, order of the data."""
    steps: Count = 1000
    """Optimizer steps of the whole run, those before a restart included."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """What is computed in; weights and gradients are kept in 32 bits or more."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it is computed; `auto` takes GPUs where there are any."""
    threads: Count = 1
    """CPU threads of each process."""

    def __post_init__(self) -> None:
        refuse_wrong(self)
        if not self.directory or "\0" in self.directory:
            raise ShapeError(f"directory is {self.directory!r}", hint="name a folder")


@dataclass(frozen=True)
class BatchSettings:
    """What one optimizer step sees."""

    length: Count = 1024
    """Tokens of a sequence."""
    rows: Count = 1
    """Sequences side by side in a microbatch."""
    microbatches: Count = 4
    """Microbatches of one replica in one step; their gradients are added up."""

    def __post_init__(self) -> None:
        refuse_wrong(self)


@dataclass(frozen=True)
class PipelineSettings:
    """How the model is laid over the processes, and in which order they work."""

    schedule: str
    """A name from `penstock list`, or the path of a schedule file."""
    devices: Natural = 0
    """Pipeline devices; 0 takes all processes, divided by the replicas."""
    chunks: Natural = 0
    """Stages of each device; 0 takes what the schedule has by default."""
    slices: Count = 1
    """Slices of each sequence."""
    cut: Literal["even", "equal-flops"] | tuple[Count, ...] = "equal-flops"
    """Slices of equal length, of equal work, or of these lengths in tokens."""
    layers: tuple[Natural, ...] = ()
    """Layers of each stage; empty divides them as evenly as can be."""
    recompute: Literal["none", "all"] | tuple[Natural, ...] = "none"
    """Forwards that keep only their input and run again: none, all, or those of these stages."""
    keep_slices: Natural = 0
    """With `recompute = "all"`: so many last slices of each sequence keep their activations."""
    replicas: Count = 1
    """Copies of the whole pipeline, each with its own share of the data."""
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    """Options of the schedule, as `-o` of `penstock show` gives them."""

    def __post_init__(self) -> None:
        refuse_wrong(self)
        if not self.schedule:
            raise ShapeError("schedule is empty", hint="see `penstock list`")
        if not isinstance(self.cut, str) and len(self.cut) != self.slices:
            raise ShapeError(
                f"cut gives {len(self.cut)} lengths for {self.slices} slices",
                hint=f"set slices to {len(self.cut)}, or give {self.slices} lengths",
            )
        if self.keep_slices and self.recompute != "all":
            raise ShapeError(
                f"keep_slices is {self.keep_slices}, but recompute is not 'all'",
                hint="leave keep_slices out, or recompute all",
            )


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW and its learning rate."""

    rate: Positive = 3e-4
    """Highest learning rate."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """How slowly the means of gradients and of their squares change."""
    epsilon: Positive = 1e-8
    """Added to the root of the squares, so that it never divides by zero."""
    weight_decay: Annotated[float, Range(least=0)] = 0.1
    """Share of a weight, times the rate, that each step takes away; not from norms and biases."""
    clip: Annotated[float, Range(least=0)] = 1.0
    """Largest global norm of the gradients; 0 never clips."""
    schedule: Literal["constant", "cosine", "wsd"] = "cosine"
    """After the warm-up: the same rate, a half cosine, or a stable phase and a linear decay."""
    warmup: Natural = 0
    """Steps over which the rate rises to its highest."""
    decay: Natural = 0
    """With `wsd`: steps over which the rate falls at the end."""
    minimum: Annotated[float, Range(least=0, most=1)] = 0.1
    """Rate of the last step of `cosine` and `wsd`, as a share of the highest."""

    def __post_init__(self) -> None:
        refuse_wrong(self)
        if (self.schedule == "wsd") != (self.decay > 0):
            raise ShapeError(
                f"decay is {self.decay} and schedule is {self.schedule!r}",
                hint='give decay 1 or more with schedule = "wsd", and no decay otherwise',
            )


@dataclass(frozen=True)
class EvaluationSettings:
    """How often the loss on held-out data is measured."""

    every: Natural = 0
    """Steps between evaluations; 0 never evaluates."""
    batches: Count = 8
    """Global batches of held-out data in each; fewer where there are not so many."""

    def __post_init__(self) -> None:
        refuse_wrong(self)


@dataclass(frozen=True)
class CheckpointSettings:
    """What is kept to go on from, and to use elsewhere."""

    every: Natural = 100
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: Count = 2
    """Newest checkpoints that are kept."""
    export: str = ""
    """Folder for the final weights as safetensors with their `config.json`; empty exports none."""
    resume: str = "auto"
    """`auto` goes on from the run's newest whole checkpoint, `never` starts anew; the path of a
    folder of checkpoints is where a run begins that has none of its own."""

    def __post_init__(self) -> None:
        refuse_wrong(self)
        if not self.resume:
            raise ShapeError("resume is empty", hint='give "auto", "never" or the path of one')


@dataclass(frozen=True)
class LogSettings:
    """What is shown and recorded besides `metrics.jsonl` and `timing.jsonl`."""

    every: Count = 10
    """Steps between lines on a console that is no terminal."""
    tensorboard: bool = False
    """Whether TensorBoard files are written too, into `tensorboard` of the run's folder."""
    wandb: str = ""
    """Weights & Biases project to report to; empty reports to none."""
    report: bool = True
    """Whether the run ends with two more steps that are looked at, and a report."""
    compare: tuple[str, ...] = ()
    """Schedules without slices whose time and memory the report shows beside the run's."""

    def __post_init__(self) -> None:
        refuse_wrong(self)


@dataclass(frozen=True)
class WatchSettings:
    """When a process counts as lost."""

    patience: Positive = 60.0
    """Seconds without a sign of life after which a process is named and the run ends."""
    beat: Positive = 1.0
    """Seconds between the signs of life of each process."""
    stuck: Positive = 600.0
    """Seconds at one place, while others wait for it, after which a process is named as stuck."""

    def __post_init__(self) -> None:
        refuse_wrong(self)
        if 2 * self.beat > self.patience:
            raise ShapeError(
                f"beat is {self.beat} s and patience {self.patience} s: one late sign would end it",
                hint="give patience at least twice the beat",
            )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A whole configuration: one field for each section of the file."""

    run: RunSettings = RunSettings()
    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=DataSettings)
    batch: BatchSettings = BatchSettings()
    pipeline: PipelineSettings
    optimizer: OptimizerSettings = OptimizerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    log: LogSettings = LogSettings()
    watch: WatchSettings = WatchSettings()

    def __post_init__(self) -> None:
        self._refuse_slices()
        self._refuse_layers()
        self._refuse_rate()
        self._refuse_evaluation()

    def _refuse_slices(self) -> None:
        cut, slices, length = self.pipeline.cut, self.pipeline.slices, self.batch.length
        if slices > length:
            raise ShapeError(
                f"pipeline.slices is {slices}, but batch.length is {length} tokens",
                hint=f"take at most {length} slices, or longer sequences",
            )
        if not isinstance(cut, str) and sum(cut) != length:
            raise ShapeError(
                f"pipeline.cut adds up to {sum(cut)} tokens, but batch.length is {length}",
                hint=f"give lengths that add up to {length}",
            )

    def _refuse_layers(self) -> None:
        layers, config = self.pipeline.layers, self.model.config
        if layers and config is not None and sum(layers) != config.layers:
            raise ShapeError(
                f"pipeline.layers adds up to {sum(layers)}, but the model has {config.layers}",
                hint="every layer belongs to exactly one stage",
            )

    def _refuse_rate(self) -> None:
        moving = self.optimizer.warmup + self.optimizer.decay
        if moving > self.run.steps:
            raise ShapeError(
                f"optimizer.warmup {self.optimizer.warmup} and optimizer.decay "
                f"{self.optimizer.decay} take {moving} steps, but run.steps is {self.run.steps}",
                hint=f"shorten them to {self.run.steps} steps together, or raise run.steps",
            )

    def _refuse_evaluation(self) -> None:
        if self.evaluation.every and not (self.data.held_out or self.data.held_out_paths):
            raise ShapeError(
                f"evaluation.every is {self.evaluation.every}, but no data is held out for it",
                hint="set data.held_out, for example to 0.05, or data.held_out_paths",
            )
