"""How documents become sequences, as the settings say it; and what is lost by it, in words."""

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
    notes: list[str] = field(default_factory=list)
    """What was lost so far, and how much is padding: told to a person."""

    def samples(self, corpus: Corpus, documents: Longs, seed: int) -> SampleStream:
        """The samples of some documents."""
        if self.packing == "cut":
            return self._cut(corpus, documents, seed)
        found = fit_documents(corpus, documents, self.length, self.longer)
        self.notes.extend(found.notes)
        sequences = _WAYS[self.packing](found, self.length)
        samples = WholeSamples(corpus, sequences, self.length, seed)
        self.notes.append(
            f"{len(found.lengths):,} documents in {samples.count:,} sequences of {self.length:,} "
            f"tokens, {samples.padding:.1%} of them padding"
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
