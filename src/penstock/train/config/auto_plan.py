"""What a configuration must leave open, or may not say, where the plan is chosen at the start.

A plan is compared with others by an estimate. What an estimate cannot price cannot be compared, so
it is refused here, with what to leave out, before anything is measured.
"""

from collections.abc import Iterator

from penstock.schedules import names_a_file
from penstock.train.config.fields import MisfitError
from penstock.train.config.plan_settings import PlanSettings
from penstock.train.config.sections import MeshSettings, OptimizerSettings, PipelineSettings

CHOSEN = "auto"
"""In the place of a schedule: it is chosen."""
UNPLANNED_DTYPES = ("float64",)
"""Types of numbers that no profile has."""


def refuse_unplanned(
    plan: PlanSettings,
    pipeline: PipelineSettings,
    mesh: MeshSettings,
    optimizer: OptimizerSettings,
    dtype: str,
) -> None:
    """Refuse what contradicts a plan that is to be chosen, or one that nobody chooses."""
    if not plan.auto:
        if pipeline.schedule == CHOSEN:
            raise MisfitError(
                f"pipeline.schedule is {CHOSEN!r}, but plan.auto is false",
                hint="set plan.auto to true, or name a schedule of `penstock list`",
            )
        return
    if dtype in UNPLANNED_DTYPES:
        raise MisfitError(
            f"plan.auto is true, but run.dtype is {dtype!r}, which is not profiled",
            hint='set run.dtype to "float32" or "bfloat16", or write the plan yourself',
        )
    for given, hint in _contradictions(pipeline, mesh, optimizer):
        raise MisfitError(f"plan.auto is true, but {given}", hint=hint)


def _contradictions(
    pipeline: PipelineSettings, mesh: MeshSettings, optimizer: OptimizerSettings
) -> Iterator[tuple[str, str]]:
    """What is given and cannot be planned with, and what to do about it."""
    open_schedule = pipeline.schedule == CHOSEN
    if not open_schedule and names_a_file(pipeline.schedule):
        yield (
            f"pipeline.schedule is the file {pipeline.schedule!r}, whose sizes are fixed",
            "name a schedule of `penstock list`, or leave it out",
        )
    if open_schedule and pipeline.options:
        yield "pipeline.options are given for no schedule", "name the schedule that has them"
    if pipeline.cut != "equal-flops":
        yield "pipeline.cut is given", "leave it out: plans cut slices of equal work"
    if pipeline.keep_slices:
        yield "pipeline.keep_slices is given", "leave it out: plans compute all again, or nothing"
    for key, value in (("recompute", pipeline.recompute), ("offload", pipeline.offload)):
        if value not in ("none", "all"):
            yield f"pipeline.{key} names some stages", f'give "none" or "all", or leave {key} out'
    if mesh.shard_ranks:
        yield "mesh.shard_ranks is given", "leave it out: all copies of a weight share it, or none"
    if optimizer.host_stages != "none":
        yield "optimizer.host_stages is given", "leave it out, or write the plan yourself"
