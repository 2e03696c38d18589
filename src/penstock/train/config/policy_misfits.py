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
    pool = "groups of one rank do what replicas do: raise mesh.sequence instead"
    given: dict[str, tuple[Any, Any, str]] = {
        "batch.rows": (batch.rows, 1, "raise batch.microbatches instead"),
        "pipeline.slices": (pipeline.slices, 1, "groups have whole sequences"),
        "pipeline.offload": (pipeline.offload, "none", "what a rank keeps changes with every plan"),
        "plan.policy": (settings.plan.policy, "fixed", "every batch has its own plan already"),
        "plan.auto": (settings.plan.auto, False, "plans are compared with equal sequences"),
        "log.compare": (settings.log.compare, (), "other schedules have no groups of their own"),
        "mesh.ring": (mesh.ring, 1, "groups exchange tokens for heads"),
        "mesh.replicas": (mesh.replicas, 1, pool),
    }
    for key, (value, usual, hint) in given.items():
        if value != usual:
            raise MisfitError(
                f'{key} is {value!r}, but data.policy is "flex"', hint=f"leave {key} out: {hint}"
            )
    if mesh.sequence == 1:
        raise MisfitError(
            'mesh.sequence is 1, but data.policy is "flex"',
            hint="set mesh.sequence to the ranks of a device that form groups",
        )
    least = -(-batch.length // mesh.sequence)
    if 0 < settings.data.rank_tokens < least:
        raise MisfitError(
            f"data.rank_tokens is {settings.data.rank_tokens}, but {mesh.sequence} ranks share "
            f"documents of up to {batch.length} tokens",
            hint=f"give {least} or more",
        )
