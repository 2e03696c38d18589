"""The work of one rank, where a device of the schedule is a cell of several.

All ranks of a cell run the same ops, each with a part of the model and of the tokens
(cost/rank_share.py). Parts differ by a head or a token at most where sizes do not divide, so a
workload is that of one place in the cell; whoever wants the largest asks for all places.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

import numpy as np

from penstock.arch.cell_shape import FIRST_PLACE, ONE_RANK, CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.dealing import most_tokens
from penstock.arch.layers.norm import Norm
from penstock.arch.mixture import share_experts
from penstock.core.homes import stage_column
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import Ints
from penstock.cost.loan_bytes import with_loan_bytes
from penstock.cost.passes import Counts
from penstock.cost.rank_share import RankShare, RankTokens
from penstock.cost.rank_temporary import RankMoments
from penstock.cost.workload import Workload

_Found = TypeVar("_Found")
_MOMENTS = ("F", "B", "I", "loss", "own", "given", "left")


def rank_workload(workload: Workload, cell: CellShape, place: CellPlace = FIRST_PLACE) -> Workload:
    """The part of a workload that the rank at a place of a cell has."""
    if cell.experts > 1 and workload.model.mixture is not None:
        shared = share_experts(workload.model.mixture, cell.experts)
        workload = replace(workload, model=replace(workload.model, mixture=shared))
    if cell.ranks == 1:
        return workload
    if isinstance(workload, CellWorkload):
        return replace(workload, cell=cell, place=place)
    sizes = (workload.model, workload.lengths, workload.layers)
    return CellWorkload(*sizes, cell, place, needs=workload.needs)


def rank_workloads(workload: Workload, cell: CellShape) -> Iterator[Workload]:
    """The parts of all ranks of a cell."""
    return (rank_workload(workload, cell, place) for place in cell.places())


@dataclass(frozen=True)
class CellWorkload(Workload):
    """The part that one rank of a cell has of a workload."""

    cell: CellShape = ONE_RANK
    place: CellPlace = FIRST_PLACE

    @cached_property
    def share(self) -> RankShare:
        return RankShare(self.model, self.cell, self.place)

    @property
    def part(self) -> ModelConfig:
        return self.share.part

    @property
    def attended(self) -> ModelConfig:
        return self.share.attended

    def boundary_bytes(self, tokens: int) -> int:
        return self.share.tokens(tokens).handed * self.model.boundary_bytes

    @cached_property
    def shared(self) -> RankTokens:
        """Tokens of each unit, and a 0 at the end, as columns."""
        each = self._of_slices(lambda lengths: [*map(self.share.tokens, lengths)])
        columns = zip(*each, RankTokens(0, 0, 0, 0))
        return RankTokens(*(np.array(column, np.int64) for column in columns))  # type: ignore[arg-type]

    @cached_property
    def tokens(self) -> Counts:
        return np.asarray(self.shared.whole)

    @property
    def attended_tokens(self) -> Counts:
        return np.asarray(self.shared.attended)

    def _half_pairs(self, window: int | None) -> Counts:
        def of_sequence(lengths: tuple[int, ...]) -> list[int]:
            slices = zip(accumulate(lengths, initial=0), lengths)
            return [self.share.half_pairs(start, count, window) for start, count in slices]

        return np.array([*self._of_slices(of_sequence), 0], np.int64)

    def _of_slices(self, found: Callable[[tuple[int, ...]], list[_Found]]) -> Iterator[_Found]:
        """What is found for the slices of every sequence; those of the same slices are alike."""
        known: dict[tuple[int, ...], list[_Found]] = {}
        for lengths in self.lengths:
            if lengths not in known:
                known[lengths] = found(lengths)
            yield from known[lengths]

    def layer_bytes(self, size: str) -> Counts:
        held = np.asarray(self.shared.held)
        return held * self.model.boundary_bytes if size == "input" else self._layer[size]

    @cached_property
    def _layer(self) -> dict[str, Counts]:
        """Bytes of one layer's buffers, of each unit."""
        held, whole, attended, _ = map(np.asarray, self.shared)
        return {
            "act": held * self._norms + whole * self._inside_blocks + self._of_attention,
            "stash": whole * self.part.stash_bytes,
            "kv": (attended + self._spare) * self.attended.kv_bytes,
            "dkv": attended * self.attended.kv_bytes * self._followed,
            "sliced": whole * self.part.sliced_bytes,
        }

    @property
    def _spare(self) -> Counts:
        """Tokens that a ring's memory of a cut sequence has room for and does not get, at its first
        slice."""

        def of_sequence(lengths: tuple[int, ...]) -> list[int]:
            kept = sum(self.share.tokens(count).attended for count in lengths)
            room = most_tokens(sum(lengths), len(lengths), self.cell.ring)
            return [(room - kept) * (len(lengths) > 1), *[0] * (len(lengths) - 1)]

        return np.array([*self._of_slices(of_sequence), 0], np.int64)

    @property
    def _norms(self) -> int:
        records = self.part.layer_records
        return sum(record.saved_bytes for record in records if isinstance(record.kind, Norm))

    @property
    def _inside_blocks(self) -> int:
        """What blocks save, attention apart."""
        return self.part.saved_bytes - self._norms - self._attends * self.part.attention.saved_bytes

    @property
    def _attends(self) -> bool:
        return self.part.attends

    @property
    def _of_attention(self) -> Counts:
        """Ranks that exchange heads have the output of attention twice: by head for its own
        backward, by token as the input of the projection back."""
        whole, attended = np.asarray(self.shared.whole), np.asarray(self.shared.attended)
        part, inside = self.part.attention, self.attended.attention
        if self.cell.ulysses == 1 or not self._attends:
            return np.asarray(whole * part.saved_bytes * self._attends, np.int64)
        again = part.query_width * part.element_bytes + part.before_norms_bytes
        # Values leave with the exchange; with norms on queries and keys they stay behind too.
        values = whole * part.sliced_bytes * (1 - self.cut)
        kept = attended * inside.attended_bytes + whole * again + values
        return np.asarray(kept, np.int64)

    def _kept(self, schedule: Schedule, size: str) -> Counts:
        stage, unit, shape = stage_column(schedule), schedule.unit, schedule.shape
        if size == "ckpt":
            started = (stage > 0) | (shape.embed == "E")
            return np.asarray(started * self._handed[unit] * self.model.boundary_bytes, np.int64)
        kept = self._of_layers(lambda each: each._layer[size])[stage, unit]
        if size == "act":
            held = np.asarray(self.shared.held)[unit]
            kept += self._at_last[stage] * held * self.part.boundary_bytes
        return np.asarray(kept, np.int64)

    @property
    def _handed(self) -> Counts:
        return np.asarray(self.shared.handed)

    def _bytes_per_token(self, shape: Shape, size: str) -> Counts:
        """On average over the longest unit, rounded up: what a copy to the host is charged for."""
        at = int(self.tokens.argmax())
        own = (np.array(each.layers, np.int64) * each._layer[size][at] for each in self.of_kinds)
        layers = np.asarray(sum(own), np.int64)
        if size == "act":
            held = int(np.asarray(self.shared.held)[at])
            layers = layers + self._at_last * held * self.part.boundary_bytes
        return np.asarray(-(-layers // max(int(self.tokens[at]), 1)), np.int64)

    def _of_layers(self, found: Callable[["CellWorkload"], Counts]) -> Counts:
        """What layers have of each unit, summed over those of each stage."""
        own = (np.outer(np.array(each.layers, np.int64), found(each)) for each in self.of_kinds)
        return np.asarray(sum(own), np.int64)

    def _temporary(self, schedule: Schedule) -> Counts:
        table, unit, stage = schedule.table, schedule.unit, stage_column(schedule)
        end, heads = self._at_last[stage], schedule.shape.loss == "F"
        columns = {name: column[unit] for name, column in self.moments.items()}
        given = np.where(end > 0, columns["own"], columns["given"])
        loss = end * columns["loss"] * heads
        left = self._of_layers(lambda each: each.moments["left"])[stage, unit]
        if not heads:  # of what shards give, own tokens alone are left before the backward
            own = (self.tokens - self._handed)[unit] * self.model.boundary_bytes
            left = left + end * own
        together = np.maximum(self._backward(stage, unit, given, "B"), loss) - left
        parted = np.maximum(self._backward(stage, unit, given, "I"), loss) - left
        # The loss hands on nothing, and the last norm keeps the sum in front of it.
        kept = end * columns["own"] * (heads or self.share.scattered)
        found = (columns["F"] - kept) * table.of_kinds("FNR")
        found += together * table.of_kinds("B") + parted * table.of_kinds("I")
        model, attending = self.attended.attending_kind, self.unbounded + self.windowed
        return with_loan_bytes(found, schedule, model, self.lengths, attending)

    def _backward(self, stage: Ints, unit: Ints, given: Counts, kind: str) -> Counts:
        """The most of the backward of each row: that of a layer, and what others have grown by. As
        a backward goes on, gradients that it leaves to earlier slices, and in an I what waits for
        W, take the place of what was kept. The former count from its start."""
        grown = self._of_layers(lambda each: each._growth(kind))
        highest = [
            (each.moments[kind] - each._growth(kind))[unit] + given + grown[stage, unit]
            for each in self.of_kinds
        ]
        some = [np.array(each.layers)[stage] > 0 for each in self.of_kinds]
        return np.asarray(np.max([own * there for own, there in zip(highest, some)], axis=0))

    def _growth(self, kind: str) -> Counts:
        """Of one layer, by unit."""
        left, waiting = self.moments["left"], self._layer["stash"] * (kind == "I")
        return np.asarray(np.maximum(left + waiting - self._layer["act"], 0), np.int64)

    @cached_property
    def moments(self) -> dict[str, Counts]:
        """What the ops of each unit need while they run, and the sizes of what they are given."""
        columns = zip(*self._of_slices(self._moments_of), (0,) * len(_MOMENTS))
        return {name: np.array(values, np.int64) for name, values in zip(_MOMENTS, columns)}

    def _moments_of(self, lengths: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The same for each slice of a sequence, in the order of `_MOMENTS`."""
        found: list[tuple[int, ...]] = []
        keys = 0
        for at, count in enumerate(lengths):
            tokens = self.share.tokens(count)
            left = keys if at + 1 == len(lengths) else 0
            keys += tokens.attended
            moments = RankMoments.of(self.share, count, keys, left)
            forward = moments.forward(tokens.handed * self.model.boundary_bytes)
            backward = (moments.backward(waiting=False), moments.backward(waiting=True))
            given = moments.own if self._gathers_input else 0
            loss = moments.loss(tokens.whole)
            found.append((forward, *backward, loss, moments.own, given, moments.left))
        return found

    @property
    def _gathers_input(self) -> bool:
        """Whether what comes from another stage is put together before it is used."""
        return self.cell.tensor > 1 and not self.share.scattered
