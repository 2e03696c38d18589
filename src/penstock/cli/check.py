"""`penstock check`: a proof, or the findings that refute a schedule."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from penstock.check import Finding, Report, check, explain, memory_findings
from penstock.cli._flat import flat
from penstock.cli._numbers import parse_bytes
from penstock.cli._output import emit, emit_json
from penstock.cli._record import plain
from penstock.cli._request import AsJson, PriceFlags, Request, Target, resolve
from penstock.draw.words import number, size_words
from penstock.lower import needed_slots
from penstock.sim import simulate
from penstock.sim.memory import amounts_of
from penstock.sim.slots import stall_free_slots
from penstock.sim.timeline import Timeline

Limit = Annotated[
    str,
    typer.Option(
        "--limit", metavar="SIZE", help="Memory limit of each device, in the unit of --sizes."
    ),
]
FINDINGS = 1
FINDINGS_SHOWN = 16


def register(app: typer.Typer) -> None:
    app.command("check")(flat(check_one))


def check_one(
    target: Target, request: Request, prices: PriceFlags, limit: Limit = "", as_json: AsJson = False
) -> None:
    """Prove a schedule, or say which op breaks which rule. Exit code 1: it is not valid.

    The order and the memory limit are proven for every timing. Peaks, and the slots with which no
    transfer waits, are those of the given times and sizes.
    """
    cost = prices.cost()
    most = parse_bytes("--limit", limit) if limit else None
    schedule = resolve(target, request, cost)
    report = check(schedule)
    if report.proven and most is not None:
        amounts, grain = amounts_of(schedule, cost)
        over = tuple(memory_findings(schedule, amounts, limit=most, grain=grain))
        report = replace(report, findings=over)
    if not report.proven:
        if as_json:
            emit_json(_refuted(schedule.name, report))
        else:
            emit(explain(schedule, report))
        raise typer.Exit(FINDINGS)
    timeline = simulate(schedule, cost)
    if as_json:
        emit_json(_proof(timeline, report))
    else:
        _print_proof(timeline, report)


def _refuted(name: str, report: Report) -> dict[str, Any]:
    findings = [_finding(finding) for finding in report.findings]
    return {"name": name, "proven": False, "ops": report.ops, "findings": findings}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "ops": [str(op) for op in finding.ops],
        "device": finding.device,
        "message": finding.message,
        "hint": finding.hint,
    }


def _proof(timeline: Timeline, report: Report) -> dict[str, Any]:
    return {
        "name": timeline.name,
        "proven": True,
        "ops": report.ops,
        "findings": [],
        "accumulation": report.accumulation,
        "channels": _channels(timeline),
        "peak": [plain(peak) for peak in timeline.peak],
    }


def _channels(timeline: Timeline) -> list[dict[str, Any]]:
    """Each directed edge and payload, with both numbers of receive slots."""
    needed, free = needed_slots(timeline.schedule), stall_free_slots(timeline)
    return [
        {
            "source": channel.source,
            "target": channel.target,
            "payload": channel.payload,
            "slots": slots,
            "slots_without_waiting": free[channel],
        }
        for channel, slots in needed.items()
    ]


def _print_proof(timeline: Timeline, report: Report) -> None:
    channels = _channels(timeline)
    slots = max((channel["slots"] for channel in channels), default=0)
    free = max((channel["slots_without_waiting"] for channel in channels), default=0)
    order = "the order of one process"
    if report.unordered:
        order = f"another order than one process on stages {_listed(report.unordered)}"
    emit(
        f"{timeline.name}: {size_words(timeline.schedule.shape)}: proven\n"
        f"  ops        {report.ops:,}, each runs once and after all it reads, in any timing\n"
        f"  channels   {len(channels)}, sends and receives in one order on both ends\n"
        f"  slots      {slots} per channel cannot deadlock; with {free} no transfer waits\n"
        f"  gradients  {report.accumulation}: added up in {order}\n"
        f"  peak       {_listed([number(peak) for peak in timeline.peak])} "
        "at these times and sizes"
    )


def _listed(items: Sequence[object]) -> str:
    """The first few items."""
    words = [str(item) for item in items[:FINDINGS_SHOWN]]
    return " ".join(words + ["..."] * (len(items) > FINDINGS_SHOWN))
