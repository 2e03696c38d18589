"""The words of the report, and its picture: what a reader should take away from a run.

Nothing here runs or reads anything, so that a report can be made from any run's figures.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import median

from penstock.draw.table import render_table
from penstock.draw.words import count_of
from penstock.plan.memory_by_class import ClassBytes
from penstock.sim.timeline import Settled, Timeline
from penstock.train.report.loss_curve import curve
from penstock.train.report.outcome import Compared, ProfiledStep, Ran, RunOutcome


def drawn(found: Compared) -> list[Timeline]:
    """Predicted and measured for a picture, in seconds and megabytes."""
    pair = {"predicted": found.predicted, "measured": found.measured}
    return [
        replace(
            timeline,
            schedule=replace(timeline.schedule, name=f"{found.name}, {what} (seconds, MB)"),
            grain=timeline.grain / 10**6,
            details=Settled.of(timeline),
        )
        for what, timeline in pair.items()
    ]


def words(outcome: RunOutcome) -> str:
    """The report as people read it."""
    ran, found, left_out = outcome.ran, outcome.compared, outcome.left_out
    parts = [
        learnt(ran),
        *plan_table(ran),
        time_table(ran, found),
        *profiled_words(ran, outcome.profiled),
        memory_table(found, ran.ranks_of_device),
        *class_table(found[0]),
        *_verdicts(found),
    ]
    parts += ["".join(f"{line}\n" for line in left_out)] if left_out else []
    return "\n".join([*parts, _places(ran), _next_steps(ran)])


def learnt(ran: Ran) -> str:
    """From which loss to which, how fast, and the curve between."""
    means, pace, count = ran.mean_losses, ran.tokens_per_second, len(ran.losses)
    if means is None or pace is None:
        return f"{ran.checkpoint} is complete: no step was left to train\n"
    some = ran.steps_of_mean
    of = f" (means of {some} steps)" if some > 1 else ""
    fell = f"{means[0]:.3f} -> {means[1]:.3f}{of}" if count > 1 else f"{means[0]:.3f}"
    return (
        f"loss {fell} after {count_of(count, 'step')}, {ran.tokens:,} tokens; "
        f"{pace:,.0f} tokens/s\n{curve(ran.losses)}"
    )


def plan_table(ran: Ran) -> list[str]:
    """Which plan was in force from which step on, and why; nothing where one was all along."""
    if not ran.plans:
        return []
    rows = [
        (
            str(each["step"] + 1),
            each["plan"],
            *(f"{each[key]:.3f}" if key in each else "-" for key in ("before", "after")),
            each["why"],
        )
        for each in ran.plans
    ]
    heads = ("from step", "plan", "before", "with it", "why")
    title = "plans, with the predicted seconds of a step before and with each\n"
    return [title + _table(heads, rows)]


def time_table(ran: Ran, found: Sequence[Compared]) -> str:
    """Seconds of a step, predicted and measured."""
    if any(each.shared is None for each in found):
        heads, rows = ["schedule", "predicted", "bubble", "measured"], map(_times, found)
        return "seconds of a step, predicted from the times of its ops\n" + _table(heads, [*rows])
    heads = ["schedule", "a core each", "bubble", f"{ran.cores} cores", "measured"]
    return (
        f"seconds of a step, predicted with a core for each process and with the {ran.cores} here\n"
        f"{_table(heads, [_times(each) for each in found])}"
        f"{ran.processes} processes share {ran.cores} cores: compare the schedules by the first "
        "column, not by the measured one\n"
    )


def _times(each: Compared) -> list[str]:
    """A row: the prediction with the cores that there are is left out where it is not needed."""
    predicted, shared = each.predicted, each.shared
    return [
        each.name,
        f"{float(predicted.makespan):.3f}",
        f"{float(predicted.bubble_makespan):.1%}",
        *([] if shared is None else [f"{float(shared):.3f}"]),
        f"{float(each.measured.makespan):.3f}",
    ]


def memory_table(found: Sequence[Compared], ranks: int = 1) -> str:
    """Megabytes that a step adds on each device of so many ranks, predicted and measured."""
    rows = []
    for each in found:
        for what, timeline in (("predicted", each.predicted), ("measured", each.measured)):
            rows.append((each.name, what, *map(_megabytes, timeline.peak)))
        for where, pairs in (("on the host", each.host), ("optimizer on the host", each.kept)):
            if any(map(any, pairs)):
                for what, bytes_ in zip((f"{where}, predicted", "measured"), zip(*pairs)):
                    rows.append((each.name, what, *map(_megabytes, bytes_)))
        if any(each.communication):
            rows.append((each.name, "communicators", *map(_megabytes, each.communication)))
    devices = found[0].predicted.schedule.shape.devices
    heads = ("schedule", "", *(f"device {device}" for device in range(devices)))
    most = f", on that of the {ranks} ranks of a device that holds most" if ranks > 1 else ""
    title = f"peak memory of a step in MB, in addition to weights and optimizer{most}\n"
    return title + _table(heads, rows)


def profiled_words(ran: Ran, profiled: ProfiledStep | None) -> list[str]:
    """A whole step with its update, against a profile; nothing where there is none."""
    if profiled is None or not ran.seconds:
        return []
    measured = median(ran.seconds)
    error = profiled.seconds / measured - 1
    crowded = ran.processes > ran.cores
    note = f"; {ran.processes} processes share {ran.cores} cores" if crowded else ""
    return [
        f"a step with its update: {profiled.seconds:.4f} s predicted with {profiled.profile}, "
        f"{measured:.4f} s measured (median of {len(ran.seconds)}), {error:+.1%}{note}\n"
    ]


def class_table(first: Compared) -> list[str]:
    """Megabytes of each device by class, predicted and measured; nothing where nobody looked."""
    if not first.classes:
        return []
    rows = []
    for name in ClassBytes._fields:
        pair = [[getattr(each, name) for each in side] for side in zip(*first.classes)]
        if any(map(any, pair)):
            words = name.replace("_", ", " if name.startswith("logits") else " ")
            for what, sizes in zip(("predicted", "measured"), pair):
                rows.append((words, what, *map(_megabytes, sizes)))
    heads = ("class", "", *(f"device {device}" for device in range(len(first.classes))))
    return [
        f"memory of {first.name} in MB by class, when a device holds most\n{_table(heads, rows)}"
    ]


def _megabytes(size: Fraction | int) -> str:
    return f"{int(size) / 1e6:.2f}"


def _verdicts(found: Sequence[Compared]) -> list[str]:
    """The run's schedule against each of the others, in a sentence."""
    first, *others = found
    return ["".join(_verdict(first, other) for other in others)] if others else []


def _verdict(one: Compared, other: Compared) -> str:
    memory = one.peak / other.peak
    time = float(one.predicted.makespan / other.predicted.makespan)
    return (
        f"{one.name} needs {memory:.2f} of the memory of {other.name} and, with a core or a GPU "
        f"for each process, {time:.2f} of its time\n"
    )


def _places(ran: Ran) -> str:
    lines = [
        f"timeline     {ran.folder / 'timeline.html'}, {ran.folder / 'trace.json'} for Perfetto",
        f"checkpoint   {ran.checkpoint}",
        *([f"safetensors  {ran.export}"] if ran.export else []),
        f"records      {ran.folder / 'metrics.jsonl'}, {ran.folder / 'timing.jsonl'}",
        f"this report  {ran.folder / 'report.txt'}",
    ]
    return "\n".join(lines) + "\n"


def _next_steps(ran: Ran) -> str:
    steps, slices = _doubled(ran)
    tries = [(f"continue to step {steps}", _train(ran, f"run.steps={steps}"))]
    if ran.replans:
        anew = (f"run.steps={steps}", f"optimizer.schedule_steps={steps}")
        tries.append(("plan the rate again", _train(ran, *anew)))
    if ran.slices > 1:
        folder = f"{ran.folder}-{slices}"
        cut = [f"pipeline.slices={slices}", f"run.directory={folder}"]
        if ran.export:
            cut.append(f"checkpoint.export={folder}/export")
        tries.append((f"cut into {slices} slices", _train(ran, *cut)))
    tries.append(("prove every schedule", "penstock verify --all"))
    width = max(len(what) for what, _ in tries)
    return "try next\n" + "".join(f"  {what:<{width}}  {command}\n" for what, command in tries)


def _train(ran: Ran, *changes: str) -> str:
    """A command that can be typed as it is, whatever the folder is called."""
    sets = [word for change in changes for word in ("--set", change)]
    return shlex.join(["penstock", "train", str(ran.folder / "config.toml"), *sets])


def _doubled(ran: Ran) -> tuple[int, int]:
    """Steps and slices, twice as many as now."""
    return 2 * len(ran.losses), 2 * ran.slices


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return render_table(head, rows, color=False)
