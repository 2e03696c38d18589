"""A profile as a page that says what each of its tables means, in one file without links."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from penstock.profiling.tables import (
    ProfileTable,
    attention_table,
    collective_table,
    copy_table,
    memory_class_table,
    module_table,
    moving_table,
    op_table,
    phase_table,
    product_table,
    step_table,
)

WIDTH, HEIGHT = 900, 160
"""Of the curve of memory, in pixels."""
STYLE = Path(__file__).with_name("report.css")


def report_page(record: Mapping[str, Any]) -> str:
    """The page of one profile."""
    case, made = record["case"], record["made"]
    title = f"{case['model']} on {made['device']}: {case['tokens']:,} tokens"
    body = "\n".join(_sections(record))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}'
        f"</title><style>{STYLE.read_text()}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        f"{body}\n</body></html>\n"
    )


def _sections(record: Mapping[str, Any]) -> Iterator[str]:
    yield _section(
        "The step",
        "Steps run as in training; the first ones are not counted. Utilisation is by 6 FLOPs for "
        "each weight and token, and by all pairs of attention, masked ones too, as in estimates.",
        step_table(record),
    )
    yield _section(
        "Phases",
        "What the step does, one after the other. They add up to the step: `other` is the time "
        "between ops, in which batches are cut and losses are read.",
        phase_table(record),
        bars=_numbers(record["phases"].values()),
    )
    yield _section(
        "Modules",
        "Where the time of the ops goes: kernels measured one by one, times what the step makes of "
        "them. The last row is what is left of the step.",
        module_table(record),
        bars=[max(0.0, row["seconds"]) for row in record["modules"]],
    )
    yield _section(
        "Ops",
        "F is a forward, I the gradient of the input, W that of the weights. The first stage has "
        "the embedding, the last the head and the loss. Later slices attend to more tokens.",
        op_table(record),
    )
    yield from _kernel_sections(record)
    yield _section(
        "Memory",
        "Weights, gradients and optimizer are held all the time; `step` is the most that ops add. "
        "`reserved` is what the allocator took for `allocated`, `context` what the process takes "
        "in addition. In fp32 the weights are the main weights, which the optimizer has.",
        memory_class_table(record),
    )
    yield _curve(record["memory"]["over_time"])


def _kernel_sections(record: Mapping[str, Any]) -> Iterator[str]:
    """Products, attention, what moves bytes, copies and collectives, one by one."""
    yield _section(
        "Products",
        "The products that take longest, [m, k] x [k, n], one by one; where one kernel has those "
        "of several experts, the sizes are those of each. `of peak` is the share of the data "
        "sheet, where the device is known.",
        product_table(record),
    )
    yield _section(
        "Attention",
        "The calls that take longest, one by one: the tokens of a slice to themselves and to those "
        "before them. `size` is that of a head.",
        attention_table(record),
    )
    yield _section(
        "Kernels that move bytes",
        "They compute little, so their speed is that of the memory.",
        moving_table(record),
    )
    yield _section(
        "Copies",
        "Between the device and its host, where activations may wait. Small copies wait for their "
        "start.",
        copy_table(record),
    )
    if record["collectives"]:
        yield _section(
            "Collectives",
            "What ranks of this machine tell each other; small ones wait, large ones send.",
            collective_table(record),
        )


def _section(title: str, text: str, table: ProfileTable, bars: Sequence[float] = ()) -> str:
    head, rows = table
    most = max(bars, default=0.0)
    lines = [f"<h2>{escape(title)}</h2><p>{_code(escape(text))}</p><table>", _cells("th", head)]
    for number, row in enumerate(rows):
        bar = ""
        if most:
            width = 100 * bars[number] / most
            bar = f'<td class="bar"><span style="width:{width:.1f}%"></span></td>'
        lines.append(_cells("td", row, bar))
    return "\n".join((*lines, "</table>"))


def _code(text: str) -> str:
    """Names between backticks as a page shows them."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _cells(tag: str, row: Sequence[str], more: str = "") -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(each)}</{tag}>' for each in row)}{more}</tr>"


def _numbers(values: Any) -> list[float]:
    """Those of rows that are shown."""
    return [max(0.0, float(value)) for value in values if value]


def _curve(samples: Sequence[Mapping[str, Any]]) -> str:
    """Bytes that ops add, op by op."""
    if not samples:
        return ""
    most = max(each["peak"] for each in samples) or 1
    wide = WIDTH / len(samples)
    bars = "".join(
        f'<rect x="{at * wide:.2f}" y="{HEIGHT * (1 - each["peak"] / most):.2f}" '
        f'width="{max(wide - 0.5, 0.5):.2f}" height="{HEIGHT * each["peak"] / most:.2f}">'
        f"<title>{escape(each['op'])}: {each['peak'] / 2**20:,.1f} MiB</title></rect>"
        for at, each in enumerate(samples)
    )
    return (
        f"<p>The most that is alive while each op runs, from the first op to the last; "
        f"{most / 2**20:,.1f} MiB at the top.</p>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">{bars}</svg>'
    )
