"""Keys that say what a data policy decides for every batch."""

from typing import TYPE_CHECKING, Any

from penstock.train.config.fields import MisfitError

if TYPE_CHECKING:
    from penstock.train.config.settings import Settings


def refuse_with_chunk(settings: "Settings") -> None:
    """Refuse settings that would be passed over in silence."""
    batch, pipeline, data = settings.batch, settings.pipeline, settings.data
    given: dict[str, tuple[Any, Any, str]] = {
        "batch.rows": (batch.rows, 1, "raise batch.microbatches instead"),
        "pipeline.slices": (pipeline.slices, 1, "set data.slice_tokens instead"),
        "pipeline.cut": (pipeline.cut, "equal-flops", "set data.slice_tokens instead"),
        "plan.auto": (settings.plan.auto, False, "plans are compared with equal sequences"),
        "plan.policy": (settings.plan.policy, "fixed", "every batch has its own plan already"),
        "log.compare": (settings.log.compare, (), "other schedules have no slices of their own"),
    }
    for key, (value, usual, hint) in given.items():
        if value != usual:
            raise MisfitError(
                f'{key} is {value!r}, but data.policy is "chunk"', hint=f"leave {key} out: {hint}"
            )
    if "groups" in pipeline.options:
        raise MisfitError(
            'pipeline.options gives groups, but data.policy is "chunk"',
            hint="leave groups out: they follow from the lengths of each batch",
        )
    if data.slice_tokens > batch.length:
        raise MisfitError(
            f"data.slice_tokens is {data.slice_tokens}, but batch.length is {batch.length} tokens",
            hint=f"give at most {batch.length}",
        )


def refuse_with_flex(settings: "Settings") -> None:
    """The same where groups of ranks are planned for every batch."""
    batch, pipeline, mesh = settings.batch, settings.pipeline, settings.mesh
    given: dict[str, tuple[Any, Any, str]] = {
        "batch.rows": (batch.rows, 1, "raise batch.microbatches instead"),
        "pipeline.offload": (pipeline.offload, "none", "what a rank keeps changes with every plan"),
        "plan.policy": (settings.plan.policy, "fixed", "every batch has its own plan already"),
        "plan.auto": (settings.plan.auto, False, "plans are compared with equal sequences"),
        "log.compare": (settings.log.compare, (), "other schedules have no groups of their own"),
    }
    if not isinstance(pipeline.cut, str):
        given["pipeline.cut"] = pipeline.cut, "even", "every group cuts its own tokens, evenly"
    for key, (value, usual, hint) in given.items():
        if value != usual:
            raise MisfitError(
                f'{key} is {value!r}, but data.policy is "flex"', hint=f"leave {key} out: {hint}"
            )
    if mesh.shape.cell.ulysses == 1:
        raise MisfitError(
            f"mesh.sequence is {mesh.sequence} and mesh.ring {mesh.ring}, so that no ranks "
            'exchange tokens for heads, but data.policy is "flex"',
            hint="set mesh.sequence to the ranks of a device that form groups, times mesh.ring",
        )
    least = -(-batch.length // mesh.sequence)
    if 0 < settings.data.rank_tokens < least:
        raise MisfitError(
            f"data.rank_tokens is {settings.data.rank_tokens}, but {mesh.sequence} ranks share "
            f"documents of up to {batch.length} tokens",
            hint=f"give {least} or more",
        )


def refuse_with_auto(settings: "Settings") -> None:
    """The same where a policy is to be chosen: one that cannot be run is left out of the choice."""
    if settings.plan.auto:
        raise MisfitError(
            'plan.auto is True, but data.policy is "auto"',
            hint="leave one of both out: plans are compared with equal sequences",
        )
