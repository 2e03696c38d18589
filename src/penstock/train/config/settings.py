"""A whole configuration, and what its sections ask of each other."""

from os.path import abspath
from typing import Annotated, Self

from pydantic import Field, model_validator

from penstock.data.settings import DataSettings
from penstock.train.config.auto_plan import refuse_unplanned
from penstock.train.config.fields import FromTable, MisfitError, Section
from penstock.train.config.lora_settings import LoraSettings
from penstock.train.config.model_settings import ModelSettings
from penstock.train.config.plan_settings import PlanSettings
from penstock.train.config.policy_misfits import (
    refuse_with_auto,
    refuse_with_chunk,
    refuse_with_flex,
)
from penstock.train.config.sections import (
    BatchSettings,
    CheckpointSettings,
    EvaluationSettings,
    LogSettings,
    MeshSettings,
    OptimizerSettings,
    PipelineSettings,
    RunSettings,
    WatchSettings,
)


class Settings(Section):
    """A whole configuration: one field for each section of the file."""

    run: RunSettings = Field(default_factory=RunSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    lora: LoraSettings = Field(default_factory=LoraSettings)
    data: Annotated[DataSettings, FromTable()] = Field(default_factory=DataSettings)
    batch: BatchSettings = Field(default_factory=BatchSettings)
    pipeline: PipelineSettings
    plan: PlanSettings = Field(default_factory=PlanSettings)
    mesh: MeshSettings = Field(default_factory=MeshSettings)
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    watch: WatchSettings = Field(default_factory=WatchSettings)

    @model_validator(mode="after")
    def _refuse_slices(self) -> Self:
        cut, slices, length = self.pipeline.cut, self.pipeline.slices, self.batch.length
        if slices > length:
            raise MisfitError(
                f"pipeline.slices is {slices}, but batch.length is {length} tokens",
                hint=f"take at most {length} slices, or longer sequences",
            )
        if not isinstance(cut, str) and sum(cut) != length:
            raise MisfitError(
                f"pipeline.cut adds up to {sum(cut)} tokens, but batch.length is {length}",
                hint=f"give lengths that add up to {length}",
            )
        return self

    @model_validator(mode="after")
    def _refuse_unplanned(self) -> Self:
        refuse_unplanned(self.plan, self.pipeline, self.mesh, self.optimizer, self.run.dtype)
        return self

    @model_validator(mode="after")
    def _refuse_rows(self) -> Self:
        batch = self.batch
        sequences = batch.rows * batch.microbatches
        for rows in self.plan.rows:
            if sequences % rows:
                raise MisfitError(
                    f"plan.rows has {rows}, but {sequences} sequences (batch.rows {batch.rows} x "
                    f"batch.microbatches {batch.microbatches}) cannot be divided by it",
                    hint=f"give sizes that divide {sequences}",
                )
        return self

    @model_validator(mode="after")
    def _refuse_layers(self) -> Self:
        layers, config = self.pipeline.layers, self.model.config
        if layers and config is not None and sum(layers) != config.layers:
            raise MisfitError(
                f"pipeline.layers adds up to {sum(layers)}, but the model has {config.layers}",
                hint="every layer belongs to exactly one stage",
            )
        return self

    @model_validator(mode="after")
    def _refuse_learning_rate(self) -> Self:
        warmup, decay = self.optimizer.warmup_steps, self.optimizer.decay_steps
        key = "optimizer.schedule_steps" if self.optimizer.schedule_steps else "run.steps"
        if warmup + decay > self.planned_steps:
            raise MisfitError(
                f"optimizer.warmup_steps {warmup} and optimizer.decay_steps {decay} take "
                f"{warmup + decay} steps, but {key} is {self.planned_steps}",
                hint=f"shorten them to {self.planned_steps} steps together, or raise {key}",
            )
        return self

    @model_validator(mode="after")
    def _refuse_policy(self) -> Self:
        refusals = {
            "auto": refuse_with_auto,
            "chunk": refuse_with_chunk,
            "flex": refuse_with_flex,
        }
        if self.data.policy in refusals:
            refusals[self.data.policy](self)
        return self

    @property
    def planned_steps(self) -> int:
        """Steps over which a run that begins with these settings plans its learning rate."""
        return self.optimizer.schedule_steps or self.run.steps

    @model_validator(mode="after")
    def _refuse_export(self) -> Self:
        source, export = self.model.huggingface, self.checkpoint.export
        if source and export and abspath(source) == abspath(export):
            raise MisfitError(
                f"checkpoint.export is {export!r}, the folder that the run begins with",
                hint="export into another folder, so that the model it began with stays",
            )
        return self

    @model_validator(mode="after")
    def _refuse_evaluation(self) -> Self:
        if self.evaluation.every and not (self.data.held_out or self.data.held_out_paths):
            raise MisfitError(
                f"evaluation.every is {self.evaluation.every}, but no data is held out for it",
                hint="set data.held_out, for example to 0.05, or data.held_out_paths",
            )
        return self
