"""A corpus in numbers, as people, pages and scripts read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.cli._policy_times import PolicyPrice, price_policy
from penstock.cost.hardware import Hardware
from penstock.data.corpus import Array, corpus
from penstock.data.open_source import open_arrays
from penstock.data.order import shuffle
from penstock.data.settings import DataSettings
from penstock.data.stats.lengths import LengthStats
from penstock.data.stats.policies import MOST_BATCHES, BatchRule, PolicyOutcome, all_outcomes
from penstock.data.tokenise import Progress
from penstock.draw.bars import BarRow, svg_bars, text_bars
from penstock.errors import ShapeError

_BATCH_SEQUENCES = 32
"""Sequences of a global batch where no size is given."""
_SLICES = 8
"""Slices of the longest sequence where no size is given."""
_SEED = 0
"""Of the order in which documents are looked at, as a run takes them in a shuffled one."""
NO_VOCABULARY = 1 << 62
"""Tokens are not looked at."""
_GIBI = 2**30
_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; }
body { color: #1d2733; } h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.8rem 0.15rem 0; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 1px solid #9aa7b5; }
svg rect { fill: #3572b0; }
@media (prefers-color-scheme: dark) { body { background: #14191f; color: #dce3ea; } }"""


class PricedModel(NamedTuple):
    """What a step would be computed by."""

    name: str
    config: ModelConfig
    machine: Hardware
    devices: int


@dataclass(frozen=True, eq=False)
class CorpusReport:
    """What was found in some files."""

    lengths: LengthStats
    rule: BatchRule
    outcomes: list[PolicyOutcome]
    longer: int
    """Documents that are longer than a sequence; policies are shown without them."""
    notes: tuple[str, ...]

    def prices(self, priced: PricedModel | None) -> list[PolicyPrice | None]:
        if priced is None:
            return [None] * len(self.outcomes)
        _, config, machine, devices = priced
        longest = min(self.lengths.longest, self.rule.length)
        return [price_policy(one, config, machine, devices, longest) for one in self.outcomes]

    def policy_table(
        self, priced: PricedModel | None
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Head and rows."""
        head = ("policy", "documents", "units", "tokens per step", "padding", "largest unit", "cut")
        predicted = ("ms per step", "tokens/s", "GiB") if priced else ()
        rows = [
            (*_counts(outcome), *_priced(price))
            for outcome, price in zip(self.outcomes, self.prices(priced))
        ]
        return (*head, *predicted), rows

    def bars(self) -> list[BarRow]:
        return [
            BarRow(
                f"{bucket.low:,} to {bucket.high:,}",
                bucket.documents / self.lengths.documents,
                bucket.tokens / self.lengths.tokens,
            )
            for bucket in self.lengths.histogram
        ]

    def record(self, priced: PricedModel | None) -> dict[str, Any]:
        """The fields of `--json`."""
        found = self.lengths
        outcomes = []
        for outcome, price in zip(self.outcomes, self.prices(priced)):
            plain = {name: value for name, value in vars(outcome).items() if name != "made"}
            outcomes.append(plain | (price._asdict() if price else {}))
        return {
            "documents": found.documents,
            "tokens": found.tokens,
            "mean": found.mean,
            "longest": found.longest,
            "percentiles": {str(share): value for share, value in found.percentiles.items()},
            "histogram": [bucket._asdict() for bucket in found.histogram],
            "batch": self.rule._asdict(),
            "longer": self.longer,
            "policies": outcomes,
            "notes": list(self.notes),
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


def _priced(price: PolicyPrice | None) -> tuple[str, ...]:
    if price is None:
        return ()
    milliseconds, rate = 1000 * price.seconds, price.tokens_per_second
    return (f"{milliseconds:,.1f}", f"{rate:,.0f}", f"{price.memory / _GIBI:.2f}")


def corpus_report(
    settings: DataSettings,
    files: tuple[Path, ...],
    cache: Path,
    progress: Progress,
    asked: BatchRule,
) -> CorpusReport:
    """Read files and look at their documents; a size of 0 follows from the data."""
    arrays, notes = open_arrays(settings, files, cache, progress)
    found = np.concatenate([np.diff(array.offsets) for array in arrays])
    lengths = LengthStats(found[found > 0])
    if not lengths.documents:
        raise ShapeError(f"{len(files):,} files hold no token", hint="name other files")
    length = asked.length or lengths.longest
    batch, size = _BATCH_SEQUENCES * length, max(length // _SLICES, 1)
    rule = BatchRule(length, asked.tokens or batch, asked.slice_tokens or size)
    fitting = lengths.lengths[lengths.lengths <= length]
    if longer := lengths.documents - len(fitting):
        notes = (*notes, _longer_words(lengths, longer, length, arrays))
    ordered = fitting[shuffle(len(fitting), _SEED)]
    outcomes = all_outcomes(ordered, rule) if len(ordered) else []
    return CorpusReport(lengths, rule, outcomes, longer, notes)


def _longer_words(lengths: LengthStats, longer: int, length: int, arrays: Sequence[Array]) -> str:
    """Documents that no sequence has room for, with the longest."""
    found = corpus(arrays, NO_VOCABULARY)
    worst = found.place(int(np.argmax(found.lengths)))
    return (
        f"{longer:,} of {lengths.documents:,} documents have more than {length:,} tokens, and the "
        f"policies are shown without them; {worst} is the longest with {lengths.longest:,}"
    )


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
        f"steps of {rule.tokens:,} tokens in sequences of up to {rule.length:,}, slices of up to "
        f"{rule.slice_tokens:,}; means over up to {MOST_BATCHES} steps"
    )


def report_html(report: CorpusReport, priced: PricedModel | None) -> str:
    """The same as a page in one file without links."""
    found = report.lengths
    title = f"{found.documents:,} documents, {found.tokens:,} tokens"
    percentiles = [(f"{share:g}%", f"{value:,}") for share, value in found.percentiles.items()]
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>Mean {found.mean:,.1f} tokens, longest {found.longest:,}.</p>",
        *(f"<p>{escape(line)}</p>" for line in report.notes),
        "<h2>Lengths of documents</h2>",
        svg_bars(report.bars(), ("share of the documents", "share of the tokens")),
        "<h2>Percentiles</h2>",
        _html_table(("share of the documents", "have at most so many tokens"), percentiles),
        f"<h2>Policies</h2><p>{escape(_rule_words(report.rule))}.</p>",
        _html_table(*report.policy_table(priced)),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head>\n<body>{''.join(sections)}</body></html>\n"
    )


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"
