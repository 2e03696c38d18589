"""Which stages have their optimizer state on the host, by the words of a configuration.

The last stages of a model have their last gradient first and are needed last in the next step, so
there is time to update them beside the pipeline: `deep` is the second half of the stages, which
with two stages on each device is the second one of every device.
"""

from collections.abc import Sequence

from penstock.core.shape import Shape


def host_stages(wanted: str | Sequence[int], shape: Shape, *, tied: bool) -> frozenset[int]:
    """The stages of a word, or these. A last stage that shares its weight with the first one is not
    among the deep ones: both are updated at the same place."""
    if not isinstance(wanted, str):
        return frozenset(wanted)
    with_weights = [stage for stage in range(shape.stages) if stage not in shape.weightless]
    shares = tied and not shape.shards
    deep = with_weights[len(with_weights) // 2 : len(with_weights) - shares]
    return frozenset({"none": [], "deep": deep, "all": with_weights}[wanted])
