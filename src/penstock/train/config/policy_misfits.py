"""Keys that say what `data.policy = "chunk"` decides for every batch."""

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
