"""Runs every schedule on the GPUs of this machine and compares it with the oracle and one process.

    python scripts/verify_gpu.py --ranks 2 4 --json rows.jsonl

`penstock verify --all --device cuda` compares more variants on four processes, and ends with the
first process that fails. This compares fewer, on several numbers of processes, and goes on: a row
that fails, or takes longer than the limit, is a row with an error. Every row is run as it is and
with a synchronisation of the device before and after every call. One JSON object is printed for
each row, and at the end how many were equal.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from penstock.arch.presets import model
from penstock.cli._verdicts import verdict_record
from penstock.errors import PenstockError
from penstock.schedules import registry
from penstock.verify.cases import ANY_SIZES, CaseSizes, trials_by_name
from penstock.verify.members import small_member
from penstock.verify.scale import CUDA, TrialScale
from penstock.verify.variants import Trial, Variant, variants_of, with_low_precision
from penstock.verify.verifier import TrialJob, VerdictRow, Verifier
from trial_jobs import plain_trial, ready, synchronised_trial

JOBS = {"plain": plain_trial, "synchronised": synchronised_trial}
VARIANTS = [variant.name for variant in with_low_precision(variants_of(CUDA))]
START = 180.0
"""Seconds for processes to start, load torch and find their device."""
STACKS = 0.8
"""Share of a row's time after which its processes say where they are."""


class Row(NamedTuple):
    """One trial and what is done between its calls."""

    trial: Trial
    run: str


def sizes_for(ranks: int) -> CaseSizes:
    """All processes in one pipeline, with few slices: over a shared GPU a transfer takes long."""
    batches = (2 * ranks, *ANY_SIZES.microbatches)
    return replace(ANY_SIZES, devices=(ranks,), microbatches=batches, slices=(2, 4, 8, 3, 1))


def chosen_variants(scale: TrialScale, names: Sequence[str]) -> list[Variant]:
    return [v for v in with_low_precision(variants_of(scale)) if v.name in names]


def rows_of(ranks: int, wanted: argparse.Namespace) -> Iterator[Row]:
    """What is to be run; what a schedule cannot meet is said on stderr."""
    scale = replace(CUDA, device=wanted.device)
    if wanted.model:
        scale = replace(scale, model=small_member(model(wanted.model), scale.model))
    variants = chosen_variants(scale, wanted.variants)
    for name in wanted.schedules:
        try:
            trials, notes = trials_by_name(registry()[name], variants, sizes_for(ranks))
        except PenstockError as error:
            trials, notes = [], [f"note: {name}: left out on {ranks} ranks, {error.message}"]
        for line in notes:
            print(line, file=sys.stderr)
        yield from (Row(trial, run) for trial in trials for run in wanted.runs)


def judged(verifier: Verifier, row: Row, limit: float) -> dict[str, Any]:
    """The verdict on a row, or the error that it ended with."""
    crew, start = verifier.crew_for(row.trial), time.perf_counter()
    job: TrialJob = partial(JOBS[row.run], patience=STACKS * limit)
    try:
        crew.limit = START
        crew.run(ready, row.trial.scale.device)
        crew.limit = limit
        record = _said(verifier.row(row.trial, job))
    except Exception as error:  # whatever it is, other rows may be right
        record = {**_named(row.trial), "equal": False, "error": str(error)}
    whole = round(time.perf_counter() - start, 3)
    return {**record, "ranks": row.trial.processes, "run": row.run, "seconds_with_reference": whole}


def _named(trial: Trial) -> dict[str, Any]:
    return {"name": trial.schedule.name, "variant": trial.variant, "dtype": trial.dtype}


def _said(row: VerdictRow) -> dict[str, Any]:
    return verdict_record(row) | ({} if row.equal else {"explanation": row.explanation})


def all_rows(wanted: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every verdict, on processes that are started once for each number of ranks."""
    for ranks in wanted.ranks:
        with Verifier() as verifier:
            for row in rows_of(ranks, wanted):
                yield judged(verifier, row, wanted.limit)


def counted(records: Iterable[dict[str, Any]], file: Path | None) -> bool:
    """Print every row as it comes and how many were equal; whether all were."""
    start, equal = time.perf_counter(), []
    with ExitStack() as open_files:
        streams = [sys.stdout, *([open_files.enter_context(file.open("w"))] if file else [])]
        for record in records:
            equal.append(record["equal"])
            for stream in streams:
                print(json.dumps(record), file=stream, flush=True)
    print(f"{sum(equal)} of {len(equal)} equal, {time.perf_counter() - start:.0f} s", flush=True)
    return bool(equal) and all(equal)


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument(
        "--schedules", nargs="+", default=list(registry()), choices=registry(), metavar="NAME"
    )
    parser.add_argument(
        "--variants", nargs="+", default=["float32", "bfloat16", "replicas"], choices=VARIANTS
    )
    parser.add_argument("--model", default="", help="a small member of this model's family")
    parser.add_argument("--runs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    wanted = read_arguments(words)
    return 0 if counted(all_rows(wanted), wanted.json) else 1


if __name__ == "__main__":
    sys.exit(main())
