"""Which sequences a step is given.

Every sample has a number, counted from the start of the run, and what it holds is a function of the
seed and this number alone. A step takes the next numbers; how they are dealt to replicas and
microbatches changes nothing about which they are, so a run may stop at any step and go on with
another layout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from penstock.data._digest import digest
from penstock.data.batch import IGNORE, Microbatch
from penstock.data.corpus import Corpus, Longs
from penstock.data.packing import PackedDocuments, PackedRow, pack_documents, row, shuffle
from penstock.errors import ShapeError

_DOCUMENTS, _SEQUENCES = 0, 1
"""Last seed of the two orders of an epoch, so that they are not the same one."""


class Epoch(NamedTuple):
    """One pass over the documents."""

    packed: PackedDocuments
    order: Longs
    """The sequences, in the order in which they are taken."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Endless samples: the documents again and again, in another order each time."""

    corpus: Corpus
    documents: Longs
    """Documents of the corpus to take."""
    length: int
    """Tokens of a sequence."""
    seed: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.seed < 0:
            raise ShapeError(
                f"sequences of {self.length} tokens with seed {self.seed} cannot be made",
                hint="the length is 1 or more, the seed 0 or more",
            )
        if not self.count:
            raise ShapeError(
                f"a sequence has {self.length:,} tokens, but the data have only {self.tokens:,} in "
                f"{len(self.documents):,} documents",
                hint="take shorter sequences or more data",
            )

    @cached_property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return int(self.corpus.lengths[self.documents].sum())

    @property
    def count(self) -> int:
        """Samples of one epoch."""
        return self.tokens // self.length

    @property
    def dropped(self) -> int:
        """Tokens at the end of an epoch that are too few for a sequence; each time others."""
        return self.tokens % self.length

    @cached_property
    def fingerprint(self) -> str:
        """Of the documents, wherever they lie."""
        return digest("samples", self.corpus.fingerprint, self.documents.astype("<i8").tobytes())

    def sample(self, number: int) -> Microbatch:
        """The sample of that number, as a microbatch of one row."""
        return self.rows([number])

    def rows(self, numbers: Sequence[int]) -> Microbatch:
        """Some samples side by side."""
        if not numbers:
            raise ShapeError("a microbatch has no rows", hint="give 1 sample or more")
        found = [self._row(number) for number in numbers]
        return Microbatch(
            tokens=torch.from_numpy(np.stack([one.tokens for one in found])),
            labels=torch.from_numpy(np.stack([one.labels for one in found])),
            documents=tuple(one.documents for one in found),
        )

    def _row(self, number: int) -> PackedRow:
        if number < 0:
            raise ShapeError(f"there is no sample {number}", hint="samples count from 0")
        epoch, place = divmod(number, self.count)
        packed, order = self._epoch(epoch)
        return row(self.corpus, packed, int(order[place]))

    @cached_property
    def _epoch(self) -> Callable[[int], Epoch]:
        """The epoch of a number; a batch lies in two at most, so two are kept."""
        return lru_cache(maxsize=2)(self._made_epoch)

    def _made_epoch(self, epoch: int) -> Epoch:
        place = shuffle(len(self.documents), self.seed, epoch, _DOCUMENTS)
        packed = pack_documents(self.corpus, self.documents[place], self.length)
        return Epoch(packed, shuffle(packed.count, self.seed, epoch, _SEQUENCES))

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
        }

    def resume(self, state: Mapping[str, Any]) -> int:
        """Samples that a stored run has consumed; refused where they would not be these samples."""
        for name, now in self.state(0).items():
            then = state.get(name)
            if type(then) is not type(now):
                raise self._no_position(name, then)
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


@dataclass(frozen=True, eq=False)
class Once(Samples):
    """Every sample once: those after the last repeat its tokens, but no label of them counts.

    An evaluation is a mean over labels, so it may ask for whole batches and still counts nothing
    twice where the last ones are not full.
    """

    def _row(self, number: int) -> PackedRow:
        if number < self.count:
            return super()._row(number)
        last = super()._row(self.count - 1)
        return last._replace(labels=np.full_like(last.labels, IGNORE))
