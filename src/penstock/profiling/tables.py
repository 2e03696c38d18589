"""Profiles as tables: what a person looks for first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.profiling.compare import ComparedValue

Head = tuple[str, ...]
ProfileTable = tuple[Head, list[tuple[str, ...]]]
CHECK_HEAD = (
    *("model", "tokens", "slices", "mb", "measured s", "estimated s", "time", "drift"),
    *("without drift", "measured MiB", "estimated MiB", "memory"),
)
MEBI = 2**20
PRODUCTS_SHOWN = 12
"""Rows of a table of kernels; the file has all of them."""


def profile_tables(record: Mapping[str, Any]) -> Iterator[ProfileTable]:
    """The step, its phases and modules, ops, kernels, copies, collectives, memory."""
    yield step_table(record)
    yield phase_table(record)
    yield module_table(record)
    yield op_table(record)
    yield product_table(record)
    yield attention_table(record)
    yield moving_table(record)
    yield copy_table(record)
    if record["collectives"]:
        yield collective_table(record)
    yield memory_class_table(record)


def step_table(record: Mapping[str, Any]) -> ProfileTable:
    step, case, used = record["step"], record["case"], record["utilisation"]
    share = used["flops_utilisation"]
    values = (
        ("model", f"{case['model']}, {case['precision']}"),
        ("tokens", f"{case['tokens']:,} in {len(case['lengths'])} slices"),
        ("device", record["made"]["device"]),
        (
            "step",
            f"{step['seconds']:.4f} s ({step['count']} steps, deviation {step['deviation']:.4f})",
        ),
        ("tokens per second", f"{step['tokens_per_second']:,.0f}"),
        ("utilisation", f"{share:.1%} of the peak" if share else "the peak is not known"),
    )
    return _rows(("profile", ""), values)


def phase_table(record: Mapping[str, Any]) -> ProfileTable:
    whole = record["step"]["seconds"]
    return _rows(
        ("phase", "ms", "share"),
        (
            (name, _ms(took), _share(took / whole))
            for name, took in record["phases"].items()
            if took
        ),
    )


def module_table(record: Mapping[str, Any]) -> ProfileTable:
    return _rows(
        ("module", "forward ms", "backward ms", "share"),
        (
            (
                row["name"],
                _ms(row["forward_seconds"]),
                _ms(row["backward_seconds"]),
                _share(row["share"]),
            )
            for row in record["modules"]
        ),
    )


def op_table(record: Mapping[str, Any]) -> ProfileTable:
    """F, I and W of each slice, by kind of stage."""
    found: dict[tuple[str, int, int, int], dict[str, str]] = {}
    for row in record["ops"]:
        key = row["stage"], row["slice"], row["tokens"], row["past"]
        found.setdefault(key, {})[row["kind"]] = _ms(row["seconds"])
    return _rows(
        ("stage", "slice", "tokens", "before", "F ms", "I ms", "W ms"),
        (
            (*map(str, key), *(each.get(kind, "") for kind in "FIW"))
            for key, each in sorted(found.items(), key=lambda item: _along_the_model(item[0]))
        ),
    )


def _along_the_model(key: tuple[str, int, int, int]) -> tuple[int, int]:
    return ("first", "middle", "last").index(key[0]), key[1]


def product_table(record: Mapping[str, Any]) -> ProfileTable:
    rows = _longest(record["products"])
    return _with_peak(
        ("product", "m", "n", "k", "ms", "TFLOP/s", "of peak"),
        (
            (
                _with_more(row, "groups", "of {} experts"),
                *(str(row[name]) for name in "mnk"),
                _ms(row["seconds"]),
                f"{row['flops_per_second'] / 1e12:.3f}",
                _share(row["share_of_peak"]),
            )
            for row in rows
        ),
    )


def attention_table(record: Mapping[str, Any]) -> ProfileTable:
    names = ("heads", "head_size", "tokens", "past")
    return _with_peak(
        ("attention", "heads", "size", "tokens", "before", "ms", "TFLOP/s", "of peak"),
        (
            (
                _with_more(row, "window", "in a window of {}"),
                *(str(row[name]) for name in names),
                _ms(row["seconds"]),
                f"{row['flops_per_second'] / 1e12:.3f}",
                _share(row["share_of_peak"]),
            )
            for row in _longest(record["attention"])
        ),
    )


def _with_more(row: Mapping[str, Any], name: str, words: str) -> str:
    """The pass, and what only some rows have."""
    return f"{row['pass']} {words.format(row[name])}" if name in row else str(row["pass"])


def _longest(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: -row["seconds"])[:PRODUCTS_SHOWN]


def copy_table(record: Mapping[str, Any]) -> ProfileTable:
    return _rows(
        ("copy", "MiB", "GB/s"),
        (
            (row["way"], _mebi(row["bytes"]), _giga(row["bytes_per_second"]))
            for row in record["copies"]
        ),
    )


def moving_table(record: Mapping[str, Any]) -> ProfileTable:
    largest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in record["kernels"]:
        key = row["name"], row["pass"]
        if key not in largest or row["bytes"] > largest[key]["bytes"]:
            largest[key] = row
    return _with_peak(
        ("kernel", "pass", "MiB", "GB/s", "of peak"),
        (
            (
                *key,
                _mebi(row["bytes"]),
                _giga(row["bytes_per_second"]),
                _share(row["share_of_peak"]),
            )
            for key, row in largest.items()
        ),
    )


def collective_table(record: Mapping[str, Any]) -> ProfileTable:
    return _rows(
        ("collective", "ranks", "KiB", "us", "GB/s sent"),
        (
            (
                row["name"],
                str(row["ranks"]),
                f"{row['bytes'] / 1024:.0f}",
                f"{row['seconds'] * 1e6:.0f}",
                _giga(row["bytes_per_second"]),
            )
            for row in record["collectives"]
        ),
    )


def memory_class_table(record: Mapping[str, Any]) -> ProfileTable:
    memory = record["memory"]
    names = ("weights", "gradients", "optimizer", "step", "allocated", "reserved", "context")
    return _rows(("memory", "MiB"), ((name, _mebi(memory[f"{name}_bytes"])) for name in names))


def check_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A case of `profile check`."""
    named = (row["model"], f"{row['tokens']:,}", str(row["slices"]), str(row["microbatches"]))
    if row["status"] != "measured":
        blank = ("", "", "", "", _mebi(row["estimated_bytes"]), "")
        return (*named, row["status"], f"{row['estimated_seconds']:.4f}", *blank)
    return (
        *named,
        f"{row['measured_seconds']:.4f}",
        f"{row['estimated_seconds']:.4f}",
        *(f"{row[name]:+.1%}" for name in ("time_error", "drift", "steady_error")),
        _mebi(row["measured_bytes"]),
        _mebi(row["estimated_bytes"]),
        f"{row['memory_error']:+.1%}",
    )


COMPARE_HEAD = ("what", "first", "second", "second / first", "more than noise")
MATRIX_HEAD = ("cell", "status", "step s", "over plain", "tokens/s", "allocated MiB")


def compare_row(found: ComparedValue) -> tuple[str, ...]:
    """A line of `profile compare`."""
    certain = {None: "", True: "yes", False: "no"}[found.certain]
    numbers = (f"{value:.6g}" for value in (found.first, found.second))
    return (found.name, *numbers, f"{found.ratio:.3f}", certain)


def matrix_row(row: Mapping[str, Any], plain: Mapping[str, Any]) -> tuple[str, ...]:
    """A cell of `profile matrix`."""
    if row["status"] != "measured":
        said = ": ".join(filter(None, (row["status"], row.get("reason"))))
        return (row["cell"], said, "", "", "", "")
    seconds, step = row["step"]["seconds"], plain.get("step")
    ratio = f"{seconds / step['seconds']:.3f}" if step else ""
    return (
        row["cell"],
        row["status"],
        f"{seconds:.4f}",
        ratio,
        f"{row['step']['tokens_per_second']:,.0f}",
        _mebi(row["memory"]["allocated_bytes"]),
    )


def row_words(head: Head, row: Sequence[str]) -> str:
    """A row by itself, before there is a table: what is known, each behind the name of its column.

    >>> row_words(("cell", "status", "step s", "tokens/s"), ("plain", "measured", "0.5", ""))
    'cell plain; status measured; step s 0.5'
    """
    return "; ".join(f"{name} {value}" for name, value in zip(head, row) if value)


def _rows(head: Head, rows: Iterable[Sequence[str]]) -> ProfileTable:
    return head, [tuple(row) for row in rows]


def _with_peak(head: Head, rows: Iterable[tuple[str, ...]]) -> ProfileTable:
    """Rows whose last cell is a share of the peak, without that column where no peak is known."""
    kept = [*rows]
    if any(row[-1] for row in kept):
        return head, kept
    return head[:-1], [row[:-1] for row in kept]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _mebi(size: float) -> str:
    return f"{size / MEBI:,.1f}"


def _giga(rate: float) -> str:
    return f"{rate / 1e9:.1f}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
