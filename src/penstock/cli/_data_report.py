"""A corpus in numbers, as people, pages and scripts read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.cli._policy_rows import (
    PRICED_BATCHES,
    PolicyRow,
    PolicyTable,
    PricedModel,
    policy_table,
)
from penstock.data.corpus import Array, corpus
from penstock.data.open_source import open_arrays
from penstock.data.order import shuffle
from penstock.data.settings import DataSettings
from penstock.data.stats.lengths import LengthStats
from penstock.data.stats.policies import MOST_BATCHES, BatchRule, PolicyOutcome
from penstock.data.tokenise import Progress
from penstock.draw.bars import BarRow, svg_bars, text_bars
from penstock.draw.words import count_of
from penstock.errors import ShapeError

_BATCH_SEQUENCES = 32
"""Sequences of a global batch where no size is given."""
_SEED = 0
"""Of the order in which documents are looked at, as a run takes them in a shuffled one."""
NO_VOCABULARY = 1 << 62
"""Tokens are not looked at."""
NO_WEIGHTS = "data.weights are not used here: documents of all paths are counted once each"
MOST_NAMED = 5
"""Files that a page names."""
_GIBI = 2**30
_PRICE_BARS = ("tokens per second", "memory of a rank")
"""What bars of policies show, as shares of the largest."""
_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; }
body { color: #1d2733; } h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.8rem 0.15rem 0; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 1px solid #9aa7b5; }
svg rect { fill: #3572b0; }
@media (prefers-color-scheme: dark) { body { background: #14191f; color: #dce3ea; } }"""


@dataclass(frozen=True, eq=False)
class CorpusReport:
    """What was found in some files."""

    lengths: LengthStats
    rule: BatchRule
    policies: PolicyTable
    longer: int
    """Documents that are longer than a sequence; policies are shown without them."""
    notes: tuple[str, ...]
    files: tuple[Path, ...]

    def policy_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Head and rows."""
        head = ("policy", "documents", "units", "tokens per step", "padding", "largest unit", "cut")
        rows = self.policies.rows
        predicted = ("ms per step", "tokens/s", "GiB", "fits") if any(r.price for r in rows) else ()
        return (*head, *predicted), [(*_counts(row.outcome), *_priced(row)) for row in rows]

    def bars(self) -> list[BarRow]:
        return [
            BarRow(
                f"{bucket.low:,} to {bucket.high:,}",
                bucket.documents / self.lengths.documents,
                bucket.tokens / self.lengths.tokens,
            )
            for bucket in self.lengths.histogram
        ]

    def price_bars(self) -> list[BarRow]:
        """Speed and memory of each policy, as shares of the largest; none without a model."""
        rows = [row for row in self.policies.rows if row.price]
        fastest = max((row.tokens_per_second for row in rows), default=1.0)
        most = max((row.memory for row in rows), default=1)
        return [
            BarRow(row.outcome.name, row.tokens_per_second / fastest, row.memory / most)
            for row in rows
        ]

    def record(self) -> dict[str, Any]:
        """The fields of `--json`."""
        found = self.lengths
        return {
            "documents": found.documents,
            "tokens": found.tokens,
            "mean": found.mean,
            "longest": found.longest,
            "percentiles": {str(share): value for share, value in found.percentiles.items()},
            "histogram": [bucket._asdict() for bucket in found.histogram],
            "batch": self.rule._asdict(),
            "longer": self.longer,
            "policies": [_row_record(row) for row in self.policies.rows],
            "notes": [*self.notes, *self.policies.notes],
        }


def _counts(outcome: PolicyOutcome) -> tuple[str, ...]:
    return (
        outcome.name,
        f"{outcome.documents:,.1f}",
        f"{outcome.units:,.1f}",
        f"{outcome.tokens:,.0f}",
        f"{outcome.padding:.1%}",
        f"{outcome.largest:,}",
        f"{outcome.cut:,}",
    )


def _priced(row: PolicyRow) -> tuple[str, ...]:
    price = row.price
    if price is None:
        return ()
    fits = "no" if price.refusal else "yes"
    times = (f"{1000 * price.seconds:,.1f}", f"{row.tokens_per_second:,.0f}")
    return (*times, f"{price.memory / _GIBI:.2f}", fits)


def _row_record(row: PolicyRow) -> dict[str, Any]:
    """A row as `--json` has it."""
    plain = {name: value for name, value in vars(row.outcome).items() if name != "made"}
    if row.price is None:
        return plain
    return plain | {
        "seconds": row.price.seconds,
        "tokens_per_second": row.tokens_per_second,
        "memory": row.price.memory,
        "fits": not row.price.refusal,
    }


class OpenedCorpus(NamedTuple):
    """Documents that were read."""

    arrays: Sequence[Array]
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def open_corpus(
    settings: DataSettings, files: tuple[Path, ...], cache: Path, progress: Progress
) -> OpenedCorpus:
    """Read files; text becomes tokens, once."""
    arrays, notes = open_arrays(settings, files, cache, progress)
    if settings.weights:
        notes = (*notes, NO_WEIGHTS)
    return OpenedCorpus(arrays, files, notes)


def corpus_report(
    opened: OpenedCorpus, asked: BatchRule, priced: PricedModel | None = None
) -> CorpusReport:
    """Look at documents; a size of 0 follows from the data."""
    found = np.concatenate([np.diff(array.offsets) for array in opened.arrays])
    lengths = LengthStats(found[found > 0])
    if not lengths.documents:
        raise ShapeError(
            f"{len(opened.files):,} files hold no token, first {str(opened.files[0])!r}",
            hint="name other files",
        )
    length, notes = asked.length or lengths.longest, opened.notes
    rule = BatchRule(length, asked.tokens or _BATCH_SEQUENCES * length, asked.slice_tokens)
    if rule.tokens < length:
        raise ShapeError(
            f"a step of {rule.tokens:,} tokens has no room for a sequence of {length:,}",
            hint="give --batch at least --length, which is the longest document if left out",
        )
    fitting = lengths.lengths[lengths.lengths <= length]
    if longer := lengths.documents - len(fitting):
        notes = (*notes, _longer_words(lengths, longer, length, opened.arrays))
    ordered = fitting[shuffle(len(fitting), _SEED)]
    policies = policy_table(ordered, rule, priced) if len(ordered) else PolicyTable([], [], 0)
    rule = rule._replace(slice_tokens=policies.slice_tokens)
    return CorpusReport(lengths, rule, policies, longer, notes, opened.files)


def _longer_words(lengths: LengthStats, longer: int, length: int, arrays: Sequence[Array]) -> str:
    """Documents that no sequence has room for, with the longest."""
    found = corpus(arrays, NO_VOCABULARY)
    worst = found.place(int(np.argmax(found.lengths)))
    return (
        f"{longer:,} of {lengths.documents:,} documents have more than {length:,} tokens, and the "
        f"policies are shown without them; {worst} is the longest with {lengths.longest:,}"
    )


def prices_text(report: CorpusReport, columns: int) -> str:
    """Bars of the times and the memory of all policies, for a terminal; empty without a model."""
    bars = report.price_bars()
    return f"\n{text_bars(bars, _PRICE_BARS, columns)}" if bars else ""


def report_text(report: CorpusReport, columns: int) -> str:
    """Totals, percentiles and the histogram, for a terminal."""
    found, rule = report.lengths, report.rule
    shares = "   ".join(f"p{share:g} {value:,}" for share, value in found.percentiles.items())
    return (
        f"{found.documents:,} documents, {found.tokens:,} tokens, mean {found.mean:,.1f}, longest "
        f"{found.longest:,}\n{shares}\n\n"
        f"{text_bars(report.bars(), ('documents', 'tokens'), columns)}\n\n{_rule_words(rule)}\n"
    )


def _rule_words(rule: BatchRule) -> str:
    return (
        f"steps of {rule.tokens:,} tokens in sequences of up to {rule.length:,}; means over up to "
        f"{MOST_BATCHES} steps, of chunk and flex and of times over {PRICED_BATCHES}"
    )


def report_html(report: CorpusReport) -> str:
    """The same as a page in one file without links."""
    found = report.lengths
    title = f"{found.documents:,} documents, {found.tokens:,} tokens"
    percentiles = [(f"{share:g}%", f"{value:,}") for share, value in found.percentiles.items()]
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_files_words(report.files))}</p>",
        f"<p>Mean {found.mean:,.1f} tokens, longest {found.longest:,}.</p>",
        "<h2>Lengths of documents</h2>",
        svg_bars(report.bars(), ("share of the documents", "share of the tokens")),
        "<h2>Percentiles</h2>",
        _html_table(("share of the documents", "have at most so many tokens"), percentiles),
        f"<h2>Policies</h2><p>{escape(_rule_words(report.rule))}.</p>",
        _html_table(*report.policy_table()),
        *([svg_bars(bars, _PRICE_BARS)] if (bars := report.price_bars()) else ()),
        *(f"<p>{escape(line)}</p>" for line in (*report.notes, *report.policies.notes)),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head>\n<body>{''.join(sections)}</body></html>\n"
    )


def _files_words(files: Sequence[Path]) -> str:
    """Which files a page is of.

    >>> _files_words([Path("a.jsonl")]), _files_words([Path(name) for name in "abcdefg"])
    ('Of a.jsonl.', 'Of a, b, c, d, e and 2 more files.')
    """
    more = count_of(len(files) - MOST_NAMED, "more file") if len(files) > MOST_NAMED else ""
    named = ", ".join(map(str, files[:MOST_NAMED]))
    return f"Of {named} and {more}." if more else f"Of {named}."


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"
