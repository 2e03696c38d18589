"""Which sequences a step is given, wherever they come from.

Every sample has a number, counted from the start of the run, and what it holds is a function of the
seed and this number alone. A step takes the next numbers; how they are dealt to replicas and
microbatches changes nothing about which they are, so a run may stop at any step and go on with
another layout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from penstock.data._digest import FileMark
from penstock.data.batch import Microbatch
from penstock.data.changed_files import FILES, marks_by_path, refuse_changed_files
from penstock.data.corpus import Longs
from penstock.data.packing import PackedRow
from penstock.errors import ShapeError


class SampleStream(Protocol):
    """Endless samples of one length, numbered from 0."""

    length: int
    """Tokens of a sequence, padding included."""
    seed: int

    @property
    def count(self) -> int:
        """Samples of one epoch."""
        ...

    @property
    def fingerprint(self) -> str:
        """Of what the samples are made of, wherever it lies."""
        ...

    @property
    def files(self) -> tuple[FileMark, ...]:
        """Where the documents come from."""
        ...

    def row(self, number: int) -> PackedRow:
        """The sample of that number."""
        ...

    def lengths(self, numbers: Sequence[int]) -> Longs:
        """Tokens of some samples without padding; no token is read for it."""
        ...

    def documents_of(self, number: int) -> tuple[int, ...]:
        """Tokens of each document of a sample, or of the part that it has; none is read."""
        ...

    def numbers(self, start: int, places: int) -> range:
        """The samples of a step that begins with one and has so many places; where they are not all
        taken, the places that are left have padding."""
        return range(start, start + places)

    def sample(self, number: int) -> Microbatch:
        """The sample of that number, as a microbatch of one row."""
        return self.rows([number])

    def rows(self, numbers: Sequence[int]) -> Microbatch:
        """Some samples side by side."""
        if not numbers:
            raise ShapeError("a microbatch has no rows", hint="give 1 sample or more")
        found = [self.row(number) for number in numbers]
        return Microbatch(
            tokens=torch.from_numpy(np.stack([one.tokens for one in found])),
            labels=torch.from_numpy(np.stack([one.labels for one in found])),
            documents=tuple(one.documents for one in found),
        )

    def batch(
        self, step: int, replica: int, replicas: int, microbatches: int, rows: int
    ) -> tuple[Microbatch, ...]:
        """A replica's microbatches of one step, where all steps before were as large."""
        start = step * replicas * microbatches * rows
        return self.batch_at(start, replica, replicas, microbatches, rows)

    def batch_at(
        self, start: int, replica: int, replicas: int, microbatches: int, rows: int
    ) -> tuple[Microbatch, ...]:
        """A replica's microbatches of the step that comes after `start` samples.

        The samples of a step are cut into microbatches in their order, and every replica takes as
        many consecutive ones: replica 0 the first, the last replica the last.
        """
        if not (0 <= replica < replicas and microbatches > 0 and rows > 0 and start >= 0):
            raise ShapeError(
                f"replica {replica} of {replicas} cannot take {microbatches} microbatches of "
                f"{rows} rows after sample {start}",
                hint="replicas count from 0; microbatches and rows are 1 or more",
            )
        first = start + replica * microbatches * rows
        begins = range(first, first + microbatches * rows, rows)
        return tuple(self.rows(range(begin, begin + rows)) for begin in begins)

    def state(self, samples: int) -> dict[str, Any]:
        """What a checkpoint keeps, so that the run goes on after this many samples."""
        return {
            "samples": samples,
            "length": self.length,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
            **marks_by_path(self.files),
        }

    def resume(self, state: Mapping[str, Any]) -> int:
        """Samples that a stored run has consumed; refused where they would not be these samples."""
        for name, now in self.state(0).items():
            if name == FILES:
                continue  # what they hold is in the fingerprint
            then = state.get(name)
            if type(then) is not type(now):
                raise self._no_position(name, then)
            if name == "fingerprint" and then != now:
                refuse_changed_files(state, self.files)
            if name != "samples" and then != now:
                raise ShapeError(
                    f"the run was stored with data of {name} {then}, but now it is {now}",
                    hint="resume with the data, tokenizer, length and seed of the stored run, or "
                    "start a new run from its exported weights",
                )
        done = int(state["samples"])
        if done < 0:
            raise self._no_position("samples", done)
        return done

    def _no_position(self, name: str, found: object) -> ShapeError:
        return ShapeError(
            f"the stored data position has {name} {found!r}", hint="take an older checkpoint"
        )


def epoch_of(number: int, count: int) -> tuple[int, int]:
    """Epoch of a sample, and its place there."""
    if number < 0:
        raise ShapeError(f"there is no sample {number}", hint="samples count from 0")
    return divmod(number, count)


@dataclass(frozen=True, eq=False)
class SameSamples(SampleStream):
    """A stream with the samples of another one."""

    stream: SampleStream
    length: int
    seed: int

    @property
    def count(self) -> int:
        return self.stream.count

    @property
    def fingerprint(self) -> str:
        return self.stream.fingerprint

    @property
    def files(self) -> tuple[FileMark, ...]:
        return self.stream.files

    def lengths(self, numbers: Sequence[int]) -> Longs:
        return self.stream.lengths(numbers)

    def documents_of(self, number: int) -> tuple[int, ...]:
        return self.stream.documents_of(number)

    def row(self, number: int) -> PackedRow:
        return self.stream.row(number)
