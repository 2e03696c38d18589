"""Why a layout fits or does not, and what its time goes to, in words with numbers."""

from math import isinf

from penstock.cluster.gpu import KEEP_SCORES
from penstock.estimate.host_room import room_on_host
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.orders_for_shards import orders_for_shards
from penstock.estimate.price import Estimate
from penstock.run.program.sharded_schedule import TWO_BUFFERS

GIBI = 2**30
TOLD_ABOVE = 0.02
"""Shares of the step from which on something is told."""


def reasons(found: Estimate) -> list[str]:
    """Sentences, the most important first."""
    memory = [_memory(found), *_host(found), *_tight(found)]
    return [*memory, *_time(found), *_advice(found)]


def _memory(found: Estimate) -> str:
    fullest = max(range(len(found.memory)), key=lambda at: found.memory[at].total)
    memory, room = found.memory[fullest], found.layout.cluster.gpu.memory
    parts = sorted(memory._asdict().items(), key=lambda item: -item[1])[:3]
    unit, worth = size_unit(memory.total)
    most = ", ".join(f"{name.replace('_', ' ')} {size / worth:,.1f}" for name, size in parts)
    left = (room - memory.total) / GIBI
    verdict = f"lacks {-left:.1f} GiB" if found.lacks else f"fits with {left:.1f} to spare"
    need = f"{memory.total / worth:,.1f}{'' if worth == GIBI else f' {unit}'}"
    return (
        f"device {fullest} needs {need} of {room / GIBI:.0f} GiB and {verdict}; "
        f"most are {most} {unit}"
    )


def size_unit(size: int) -> tuple[str, int]:
    """In what bytes are written, and what one of it is: a model for a test is no part of a GiB."""
    return ("GiB", GIBI) if size >= GIBI else ("MiB", 2**20)


def _host(found: Estimate) -> list[str]:
    """Of what waits on the host."""
    room, waiting = room_on_host(found.layout.cluster) / GIBI, found.host / GIBI
    if not found.host:
        return []
    if isinf(room):
        return [
            f"activations take {waiting:,.1f} GiB of the host of a machine, whose memory is not "
            "known: give it as machine.memory_gib of a cluster file"
        ]
    verdict = f"lack {waiting - room:,.1f} GiB" if found.host_lacks else "fit"
    return [
        f"activations of a machine take {waiting:,.1f} of {room:,.0f} GiB on its host and {verdict}"
    ]


def _tight(found: Estimate) -> list[str]:
    room = found.layout.cluster.gpu.memory
    most = max(each.total for each in found.memory)
    if not room * (1 - TOLD_ABOVE) < most <= room:
        return []
    return [f"less than {TOLD_ABOVE:.0%} is to spare, and estimates may be off by that: try a step"]


def number_words(count: int, thing: str, ending: str = "s") -> str:
    """A number of things.

    >>> number_words(1, "replica"), number_words(2, "microbatch", "es")
    ('1 replica', '2 microbatches')
    """
    return f"{count:,} {thing}{ending if count != 1 else ''}"


def _time(found: Estimate) -> list[str]:
    told = []
    if found.bubble > TOLD_ABOVE:
        told.append(f"a GPU has nothing to do for {found.bubble:.1%} of the step{_few(found)}")
    for kind, seconds in found.exposed.items():
        if seconds > TOLD_ABOVE * found.seconds:
            told.append(
                f"without waiting for {_COMMUNICATION[kind]} the step would be "
                f"{seconds / found.seconds:.1%} shorter"
            )
    return told


def _few(found: Estimate) -> str:
    """How many pieces of work fill the pipeline, where there is one."""
    layout = found.layout
    count, devices = layout.microbatches, layout.pipeline
    pieces = number_words(count, "microbatch", "es")
    return f", with {pieces} for {devices} devices" if devices > 1 else ""


_COMMUNICATION = {
    "tensor": "ranks that share matrices",
    "sequence": "ranks that share tokens",
    "stages": "transfers between stages",
    "copies": "sums and gathers over copies of the weights",
}


def _advice(found: Estimate) -> list[str]:
    """What a layout pays for without need, or what may be asked of it in vain."""
    layout, told = found.layout, []
    if layout.recompute.text == "selective" and layout.attention not in KEEP_SCORES:
        told.append(f"selective recompute changes nothing: {layout.attention} keeps no scores")
    if layout.mesh.tensor > layout.cluster.machine.gpus:
        told.append(
            f"tensor is {layout.mesh.tensor}, more than the {layout.cluster.machine.gpus} GPUs of "
            "a machine: its sums go over the network"
        )
    told += _uneven(found) + _turns(layout, found)
    return told + _smaller(layout, found) + _gathered(layout, found)


def _uneven(found: Estimate) -> list[str]:
    """A device that the others wait for in every microbatch, by more than a layer of theirs: then
    one of them may take it over."""
    layout, works = found.layout, found.works
    if layout.layers or len(works) < 2:
        return []
    slowest = max(range(len(works)), key=lambda at: works[at])
    others = (sum(works) - works[slowest]) / (len(works) - 1)
    more, layer = works[slowest] - others, others * len(works) / layout.model.layers
    if more < max(layer, TOLD_ABOVE * found.seconds):
        return []
    cut = 0 in found.layers  # layers are cut at their attention, and each device has as many
    orders = [*(() if cut else ("--layers balanced",)), *orders_for_shards(layout)]
    told = f"device {slowest} works {more / others:.1%} longer than the others, which wait for it"
    return [f"{told}: take {' or '.join(orders)}" if orders else told]


def _turns(layout: TrainingLayout, found: Estimate) -> list[str]:
    """Passes over the vocabulary in an order that leaves no time for them."""
    if not layout.vocabulary or found.bubble < TOLD_ABOVE:
        return []
    orders = orders_for_shards(layout)
    if not orders:
        return []
    return [
        "every microbatch waits for all devices where its forward becomes a backward, and "
        f"{layout.schedule} leaves no time for that: take {' or '.join(orders)}"
    ]


def _smaller(layout: TrainingLayout, found: Estimate) -> list[str]:
    """Optimizer state that every copy holds, where memory lacks."""
    if not found.lacks or layout.shard != "none" or layout.copies == 1:
        return []
    held = max(each.optimizer for each in found.memory)
    saved = held * (layout.copies - 1) // layout.copies
    return [f"shard=optimizer over {layout.copies} copies would free {saved / GIBI:.1f} GiB"]


def _gathered(layout: TrainingLayout, found: Estimate) -> list[str]:
    """Stages that are gathered as a whole, where memory lacks and a device has no more of them than
    buffers for them."""
    stages = len(found.layers) // layout.pipeline
    if not found.lacks or layout.shard != "full" or stages > TWO_BUFFERS.weights:
        return []
    return [
        f"shard=full gathers whole stages, and a device has {number_words(stages, 'stage')}: a "
        "schedule that takes more of them (-v) would hold fewer weights and gradients at a time"
    ]
