"""How documents become sequences, as the settings say it; and what is lost by it, in words."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.data.corpus import Corpus, Longs
from penstock.data.samples import Samples
from penstock.data.stream import SampleStream
from penstock.data.whole import fit_documents, packed_sequences, single_sequences
from penstock.data.whole_samples import WholeSamples

_WAYS = {"whole": packed_sequences, "single": single_sequences}


@dataclass(frozen=True)
class Arrangement:
    """A way to lay documents into sequences of one length."""

    packing: str
    longer: str
    length: int
    policy: str = "pack"
    """What makes microbatches of sequences; `pack` alone keeps their padding."""
    notes: list[str] = field(default_factory=list)
    """What was lost so far, and how much is padding: told to a person."""

    def samples(
        self, corpus: Corpus, documents: Longs, seed: int, source: str = ""
    ) -> SampleStream:
        """The samples of some documents; notes of them name the source."""
        begun = len(self.notes)
        found = self._samples(corpus, documents, seed)
        self.notes[begun:] = named_notes(source, self.notes[begun:])
        return found

    def _samples(self, corpus: Corpus, documents: Longs, seed: int) -> SampleStream:
        if self.packing == "cut":
            return self._cut(corpus, documents, seed)
        found = fit_documents(corpus, documents, self.length, self.longer)
        self.notes.extend(found.notes)
        sequences = _WAYS[self.packing](found, self.length)
        samples = WholeSamples(corpus, sequences, self.length, seed)
        padding = f"{samples.padding:.1%} of them padding"
        if self.policy != "pack":
            padding += ", which microbatches leave out"
        self.notes.append(
            f"{len(found.lengths):,} documents in {samples.count:,} sequences of {self.length:,} "
            f"tokens, {padding}"
        )
        return samples

    def _cut(self, corpus: Corpus, documents: Longs, seed: int) -> Samples:
        samples = Samples(corpus, documents, self.length, seed)
        if samples.dropped:
            self.notes.append(
                f"{samples.dropped:,} of {samples.tokens:,} tokens do not fill a sequence and are "
                "left out, others in each epoch"
            )
        return samples


def named_notes(source: str, notes: Iterable[str]) -> list[str]:
    """Notes with their source in front, where it has a name.

    >>> named_notes("'a.jsonl'", ["1 document is empty"]), named_notes("", ["2 are empty"])
    (["'a.jsonl': 1 document is empty"], ['2 are empty'])
    """
    return [f"{source}: {note}" if source else note for note in notes]
