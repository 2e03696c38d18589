"""`penstock plan`: which layout and schedule train a model fastest on a cluster, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, Any

import typer

from penstock.cli._flat import flat
from penstock.cli._goodput import PlanAtScale, ScaleFlags
from penstock.cli._needs import need_pydantic
from penstock.cli._output import emit, emit_json, emit_table, note
from penstock.cli._request import AsJson
from penstock.cli._written_files import refuse_lost
from penstock.cli.estimate import LayoutFlags
from penstock.draw.page import page
from penstock.draw.units import in_units
from penstock.errors import ShapeError
from penstock.estimate.price import Estimate, layout_cost
from penstock.estimate.reasons import GIBI, size_unit
from penstock.estimate.step_schedule import step_schedule
from penstock.files import save_text
from penstock.planner.advice import Plans, advise, needs, state_bytes
from penstock.planner.answer import plans_record
from penstock.planner.candidates import all_candidates
from penstock.planner.configuration import configuration
from penstock.planner.nothing_found import nothing_found
from penstock.planner.problem import PlanProblem, problem_from
from penstock.planner.processes import PlanProcesses, usable_cores
from penstock.planner.search import SearchResult, search_plans
from penstock.planner.simulations import Simulations
from penstock.planner.words import (
    lacking_words,
    option_words,
    page_words,
    plan_mesh,
    schedule_words,
    why,
)
from penstock.sim import simulate

NOTHING_FITS = 1
QUIET = 3.0
"""Seconds between two lines about progress."""


@dataclass(frozen=True)
class PlanFlags:
    """How much is searched, and what is done with the answer."""

    top: Annotated[
        int, typer.Option("--top", min=1, max=100, metavar="N", help="Plans to show.")
    ] = 5
    most: Annotated[
        int,
        typer.Option("--simulate", min=1, max=1_000_000, metavar="N", help="Simulations at most."),
    ] = 1000
    why: Annotated[
        int, typer.Option("--why", min=0, metavar="PLAN", help="Explain a plan, by its number.")
    ] = 0
    pick: Annotated[
        int, typer.Option("--pick", min=1, metavar="PLAN", help="The plan of --save and --html.")
    ] = 1
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE", help="Write it for `penstock train`.")
    ] = None
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Draw its timeline and memory.")
    ] = None

    def refuse_vain(self) -> None:
        """Before a search, which takes seconds."""
        refuse_lost({"--save": self.save, "--html": self.html})
        for number in (self.why, self.pick):
            if number > self.top:
                raise ShapeError(
                    f"there is no plan {number}", hint=f"give 1 to {self.top}, or raise --top"
                )


def register(app: typer.Typer) -> None:
    app.command("plan")(flat(plan_layouts))


def plan_layouts(
    flags: LayoutFlags, wanted: PlanFlags, scale: ScaleFlags, as_json: AsJson = False
) -> None:
    """Find the fastest layout and schedule for a model on a cluster.

    Needed are --model, --cluster, --tokens and --batch-tokens. What else is given is kept, all the
    rest is searched: bounds of time and memory for every candidate, then simulations of those that
    can be among the best. Exits 0 where a plan fits and 1 where none does.

    With --mtbf-hours each plan has the number of steps between checkpoints with which most of the
    time is progress when GPUs fail; with --jitter the time that 95 % of its steps keep.
    """
    problem = problem_from(flags.given)
    scale.refuse_senseless()
    wanted.refuse_vain()
    answer = _searched(problem, wanted)
    try:  # files first: who reads the answer may stop early
        if answer.plans:
            _write(answer, wanted)
    finally:
        _show(answer, wanted, scale, as_json)
    if not answer.plans:
        raise typer.Exit(NOTHING_FITS)


def _show(answer: Plans, wanted: PlanFlags, scale: ScaleFlags, as_json: bool) -> None:
    """The answer, and why a plan is what it is."""
    at_scale = [PlanAtScale.of(plan, scale) for plan in answer.plans]
    if as_json:
        explained = {"why": _explained(answer, wanted.why)} if wanted.why else {}
        emit_json(_record(answer, at_scale) | explained)
    else:
        _print(answer, at_scale)
    if answer.plans and wanted.why and not as_json:
        emit("")
        emit("\n".join(f"- {each}" for each in _explained(answer, wanted.why)))


def _searched(problem: PlanProblem, wanted: PlanFlags) -> Plans:
    said = SearchProgress()
    with PlanProcesses(problem, usable_cores()) as processes:
        every = all_candidates(problem, said.bounded, processes)
        if not len(every):
            raise nothing_found(problem)
        said.all_bounded(len(every))
        simulations = Simulations(processes)
        found = search_plans(every, wanted.top, wanted.most, said.simulated, simulations)
        said.all_simulated(found)
        return advise(found, simulations)


class SearchProgress:
    """Lines on stderr while a search goes on, not more than one in a few seconds, and how fast it
    was."""

    def __init__(self) -> None:
        self.since = self.last = self.began = monotonic()

    def bounded(self, count: int) -> None:
        self._say(f"{count:,} candidates bounded")

    def simulated(self, count: int, best: float | None) -> None:
        found = "none fits so far" if best is None else f"the best takes {best:.3f} s"
        self._say(f"{count:,} candidates simulated, {found}")

    def all_bounded(self, count: int) -> None:
        self._rate(f"{count:,} candidates bounded", count)

    def all_simulated(self, found: SearchResult) -> None:
        more = f"; {found.ruled_out:,} more ruled out by closer bounds" * (found.ruled_out > 0)
        self._rate(f"{found.simulated:,} candidates simulated", found.simulated, more)

    def _rate(self, text: str, count: int, more: str = "") -> None:
        now = monotonic()
        took, self.began = max(now - self.began, 1e-3), now
        note(f"{text} in {took:.1f} s, {count / took:,.0f} in a second{more}")

    def _say(self, text: str) -> None:
        now = monotonic()
        if now - self.last >= QUIET:
            self.last = now
            note(f"{text}, {now - self.since:.0f} s")


def _record(answer: Plans, at_scale: Sequence[PlanAtScale]) -> dict[str, Any]:
    record = plans_record(answer)
    for plan, more in zip(record["plans"], at_scale):
        plan |= more.record()
    return record


def _print(answer: Plans, at_scale: Sequence[PlanAtScale]) -> None:
    found = answer.found
    if answer.plans:
        unit, size = size_unit(max(map(needs, answer.plans)))
        rows = [
            (*_row(at, each.plan, size), *each.cells().values())
            for at, each in enumerate(at_scale, 1)
        ]
        emit_table((*_HEAD, unit, *_HEAD_AFTER, *at_scale[0].cells()), rows)
    else:
        emit(_nothing_fits(answer))
    emit(f"{len(found.candidates):,} candidates, {found.simulated:,} simulated")
    if found.open:
        emit(f"{found.open:,} more {_open_words(answer)}: --simulate takes more of them")
    if answer.plans and answer.nearest:
        near = answer.nearest
        emit(
            f"nearest faster plan that does not fit: {_words(near)}, {near.seconds:.3f} s, "
            f"lacks {lacking_words(near)}"
        )
    for which, each in zip(("first", "next"), answer.relaxed):
        emit(f"to relax {which}: {each.text}, {each.gain:.1%} more tokens in a second")


def _open_words(answer: Plans) -> str:
    """What may be said of candidates that were not simulated."""
    if not answer.plans:
        return "may fit"
    return f"have bounds below what is shown, from {answer.found.open_seconds:.3f} s on"


def _nothing_fits(answer: Plans) -> str:
    problem, leanest = answer.found.candidates.problem, answer.nearest
    none = "no plan that was simulated" if answer.found.open else "no plan"
    none += f" fits into {problem.cluster.gpu.memory / GIBI:.0f} GiB"
    if leanest is None:
        return none
    parts = max(leanest.memory, key=lambda each: each.total)._asdict().items()
    most = sorted(parts, key=lambda part: -part[1])[:3]
    words = ", ".join(f"{name.replace('_', ' ')} {size / GIBI:.1f}" for name, size in most)
    state, gpus = state_bytes(problem) / GIBI, problem.cluster.gpus
    return (
        f"{none}. The leanest that was found, {_words(leanest)}, needs "
        f"{needs(leanest) / GIBI:.1f} GiB: {words}; it lacks {lacking_words(leanest)}\n"
        f"weights, gradients and optimizer state are {state:,.1f} GiB in all, {state / gpus:.1f} "
        f"on each of {gpus:,} GPUs if nothing is held twice\n"
        "what helps: more GPUs, GPUs with more memory, a shorter sequence"
    )


def _words(plan: Estimate) -> str:
    parts = (plan_mesh(plan.layout), schedule_words(plan.layout), option_words(plan.layout))
    return " ".join(part for part in parts if part != "-")


_HEAD = ("", "mesh", "schedule", "options", "step s", "tokens/s", "utilisation")
_HEAD_AFTER = ("bubble", "exposed s")


def _row(number: int, plan: Estimate, unit: int) -> tuple[str, ...]:
    layout = plan.layout
    return (
        str(number),
        plan_mesh(layout),
        schedule_words(layout),
        option_words(layout),
        f"{plan.seconds:.3f}",
        f"{plan.tokens_per_second:,.0f}",
        f"{plan.flops_utilisation:.1%}",
        f"{needs(plan) / unit:.1f}",
        f"{plan.bubble:.1%}",
        f"{sum(plan.exposed.values()):.3f}",
    )


def _explained(answer: Plans, number: int) -> list[str]:
    return why(answer, _chosen(answer, number)) if answer.plans else []


def _chosen(answer: Plans, number: int) -> Estimate:
    count = len(answer.plans)
    if number > count:
        some = f"only {count} were found; give 1 to {count}"
        hint = some if count > 1 else "only one was found; give 1"
        raise ShapeError(f"there is no plan {number}", hint=hint)
    return answer.plans[number - 1]


def _write(answer: Plans, wanted: PlanFlags) -> None:
    plan = _chosen(answer, wanted.pick)
    layout = plan.layout
    if wanted.save:
        need_pydantic()
        from penstock.train.config.toml_text import written

        save_text(wanted.save, written(configuration(layout)))
        note(f"wrote {wanted.save}")
    if wanted.html:
        step = step_schedule(layout)
        timeline = simulate(step.schedule, layout_cost(layout, step))
        save_text(wanted.html, page.render(in_units([timeline]), page_words(plan)))
        note(f"wrote {wanted.html}")
