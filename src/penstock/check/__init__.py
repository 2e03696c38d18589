"""The proof: a schedule reaches the simulator and the runtime only through here.

`check` never raises and never prints: it returns findings. An empty list is a proof that every op
runs, in any timing. There is no switch to skip it.
"""

from penstock.check.annotations import annotations
from penstock.check.complete import complete, known, stream
from penstock.check.confirmed import ops_to_confirm_before
from penstock.check.explain import explain
from penstock.check.finding import RULES, Finding, Report
from penstock.check.memory import memory_findings
from penstock.check.order import order
from penstock.check.placement import collective_order, local, one_home, unordered_stages
from penstock.check.program import check_program
from penstock.core.schedule import Schedule

__all__ = [
    "RULES",
    "Finding",
    "Report",
    "check",
    "check_program",
    "explain",
    "memory_findings",
    "require",
]

_STEPS = (
    (known,),
    (stream,),
    (complete,),
    (annotations,),
    (one_home, collective_order),
    (order,),
    (local, ops_to_confirm_before),
)
"""Rules in turn: a step is looked at only when the ones before it found nothing, so that one
mistake is reported once and not through everything that follows from it."""


def check(schedule: Schedule) -> Report:
    """Findings about a schedule, or none; worked out once and kept with it."""
    return schedule.derive("report", _check)


def _check(schedule: Schedule) -> Report:
    for step in _STEPS:
        findings = tuple(finding for rule in step for finding in rule(schedule))
        if findings:
            return Report(findings, len(schedule.table))
    return Report((), len(schedule.table), unordered_stages(schedule))


def require(schedule: Schedule) -> Report:
    """The proof of a schedule, or an error that carries the findings."""
    report = check(schedule)
    if not report.proven:
        raise report.error(schedule.name or "the schedule")
    return report
