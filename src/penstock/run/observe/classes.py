"""What the memory of a rank is for, looked at while the op runs that holds most.

A meter knows how many bytes are alive, not what they are for. The lane of a device does: each place
of it belongs to a buffer of the meaning table. So before and after the op whose peak is highest,
the storages in all places are sorted by their buffer. What the meter has counted in addition was
made and freed while the op ran.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from penstock.core.buffers import BUFFERS
from penstock.core.ops import Op
from penstock.model.attention.back_end import AttentionSaved
from penstock.plan.memory_by_class import ClassBytes, class_of_buffer
from penstock.run.execute.executor import Executor
from penstock.run.execute.observer import Quiet
from penstock.run.observe.memory_meter import Sample
from penstock.run.program.calls import DROPPED, NOTHING, Call, Lane
from penstock.run.program.places import READ, WRITE, names_of
from penstock.run.step.engine import Engine

KEYS, ACTIVATIONS, RUNNING = "keys_values", "activations", "logits_temporaries"
EXCHANGED = "communication_buffers"
SORTED = (KEYS, ACTIVATIONS, RUNNING, EXCHANGED)
"""The first class that a storage is found in counts: an activation may be an input that came as a
message, and keys lie in what a layer has saved."""
Storages = dict[int, int]
"""Bytes of storages by their addresses."""


def held_bytes(engine: Engine) -> tuple[int, int, int]:
    """Bytes that are there all the time: weights, gradients, and main weights with moments. Of
    stages that the host updates, what the device has."""
    values, gradients, state = Storages(), Storages(), Storages()
    for stage, weights in engine.weights.items():
        _note(gradients, weights.grad)
        on_device = weights.main.device == weights.value.device
        if on_device and stage not in getattr(engine.adam, "host_stages", ()):
            for tensor in (weights.main, *engine.optimizers[stage].moments.values()):
                _note(state, tensor)
        _note(values, weights.value)
        _note(values, weights.frozen)
    for name, buffers in engine.pool.flat.items():
        for buffer in buffers:
            _note({"weight": values, "dw": gradients}[name], buffer)
    apart = (size for at, size in values.items() if at not in state)
    return sum(apart), sum(gradients.values()), sum(state.values())


class ClassObserver(Quiet):
    """Looks into the places of a lane around one op."""

    def __init__(self, executor: Executor, op: Op, existing: list[Tensor]) -> None:
        self._executor, self._op = executor, op
        self._buffer_of = place_buffers(executor.lane)
        self._there = Storages()
        for tensor in existing:
            _note(self._there, tensor)
        self.found: dict[str, Storages] = {name: {} for name in SORTED}

    def runs(self, call: Call) -> None:
        if call.op == self._op:
            self._look(self._buffer_of)

    def ran(self, call: Call) -> None:
        """What is there from the start of the op that writes it on has been there at its peak."""
        if call.op == self._op:
            started = {at: name for at, name in self._buffer_of.items() if _from_start(name)}
            self._look(started)

    def _look(self, buffers: Mapping[int, str]) -> None:
        for place, name in buffers.items():
            for kind, tensor in _tensors(self._executor.values[place], class_of_buffer(name)):
                _note(self.found[kind], tensor)

    def classes(self, held: tuple[int, int, int], peak: int) -> ClassBytes:
        """With what is held all the time; a step adds `peak` bytes at most."""
        seen, sizes = {*self._there}, dict.fromkeys(SORTED, 0)
        for name in SORTED:
            new = {at: size for at, size in self.found[name].items() if at not in seen}
            seen |= new.keys()
            sizes[name] = sum(new.values())
        running = max(sizes[RUNNING], peak - sum(sizes.values()) + sizes[RUNNING])
        return ClassBytes(*held, sizes[ACTIVATIONS], sizes[KEYS], running, sizes[EXCHANGED])


def peak_op(samples: Mapping[Op, Sample]) -> Op | None:
    """The op while which most was alive; None where nothing was looked at."""
    return max(samples, key=lambda op: samples[op].peak, default=None)


def place_buffers(lane: Lane) -> dict[int, str]:
    """Which buffer of the meaning table each place of a device belongs to."""
    found: dict[int, str] = {}
    for call in lane.calls:
        sides = ((READ, call.reads), (WRITE, call.writes))
        for side, places in sides:
            for name, place in zip(names_of(call.op.kind, side), places):
                found.setdefault(place, name)
    return {place: name for place, name in found.items() if place not in (NOTHING, DROPPED)}


def _from_start(name: str) -> bool:
    return BUFFERS[name].born == "start"


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors inside a value, with the class of each."""
    pending, known = [(value, name)], set[int]()
    while pending:
        each, kind = pending.pop()
        if isinstance(each, Tensor):
            yield kind, each
        elif id(each) not in known:
            known.add(id(each))
            pending += _parts(each, kind)


def _parts(value: Any, kind: str) -> list[tuple[Any, str]]:
    if isinstance(value, AttentionSaved):
        keys = [(value.k, KEYS), (value.v, KEYS)]
        return [*keys, *((each, kind) for each in (value.q, value.out, value.lse))]
    if isinstance(value, dict):
        return [(each, kind) for each in value.values()]
    if isinstance(value, tuple | list):
        return [(each, kind) for each in value]
    return [(each, kind) for each in getattr(value, "__dict__", {}).values()]


def _note(storages: Storages, tensor: Tensor) -> None:
    storage = tensor.untyped_storage()
    storages[storage._cdata] = storage.nbytes()
