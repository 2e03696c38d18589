"""The part of `penstock bench run` that trains the same documents under every data policy.

Once every op takes the time that it would take in a large model on GPUs, so that ranks may share
cores; and, where each rank has a core, once with a small model that really computes. Both ways the
ratio that a simulation predicts stands beside the measured one, and the time of a plan beside what
a step has waited for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from json import dumps
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.bench.measure.policy_plans import PolicyCase, simulated_seconds
from penstock.bench.policy_fit import FittedTimes, fitted_costs, measured_steps
from penstock.bench.run import BenchSettings, Result, Say, cores, spin
from penstock.bench.unequal import batch_lengths
from penstock.cluster.presets import preset_cluster
from penstock.core.kernel import compile_small_work
from penstock.cost.hardware import HARDWARE
from penstock.errors import ShapeError
from penstock.estimate.group_cost import GroupSetting, group_cost
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.policies.arranged import ArrangedStep
from penstock.estimate.policies.op_seconds import OpSeconds, op_seconds
from penstock.estimate.policies.step_price import sized_for
from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import SliceRule
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.slice_choice import choose_rule, weight_read_tokens

if TYPE_CHECKING:
    from penstock.bench.measure.policy_steps import PolicyRun, PolicyStep
    from penstock.run.launch.worker_pool import Crew

COMPARED_POLICIES = ("pack", "chunk", "flex")


SAME_LOSS = 1e-5
"""Relative difference up to which losses count as equal; modelled steps have other tokens."""


class PlannedPolicies(NamedTuple):
    """What is run, and what is predicted of it."""

    run: "PolicyRun"
    batches: list[list[int]]
    steps: dict[str, list[ArrangedStep]]
    seconds: dict[str, list[float]]
    """Predicted, of each batch under each policy."""
    waits: dict[str, list[list[OpSeconds]]]
    """Of each batch; empty where ops compute."""


def measure_policies(settings: BenchSettings, say: Say) -> Result:
    """Every policy on the same batches; told row by row."""
    from penstock.run.launch.worker_pool import Crew

    ranks, rows = settings["ranks"], list[Result]()
    settings = {**settings, "devices": _devices(ranks, settings["sequence"])}
    with Crew(ranks) as crew:
        ways = [("modelled", plan_modelled(settings))]
        if cores() >= ranks:
            ways.append(("computed", plan_computed(crew, settings)))
        else:
            say(f"bench: computed steps are left out: {ranks} processes need as many cores")
        for name, planned in ways:
            for row in _rows(crew, planned):
                rows.append({"ops": name, **row})
                say(dumps({"policies": rows[-1]}))
    sizes = {key: settings[key] for key in ("devices", "sequence", "documents", "longest")}
    return {**sizes, "rows": rows}


def _devices(ranks: int, sequence: int) -> int:
    if ranks % sequence:
        raise ShapeError(
            f"{ranks} ranks cannot be devices of {sequence} ranks that share tokens",
            hint=f"give --ranks a multiple of {sequence}",
        )
    return ranks // sequence


def _rows(crew: "Crew", planned: PlannedPolicies) -> Iterator[Result]:
    """The first batch is not counted: nothing could be planned while another one ran."""
    from penstock.bench.measure.policy_steps import policy_steps

    first: Result | None = None
    for policy in COMPARED_POLICIES:
        waits = planned.waits.get(policy, [])
        found = crew.run(policy_steps, planned.run, policy, planned.batches, waits)
        row = _row(planned, policy, found)
        first = first or row
        gains = {f"{name}_gain": first[name] / row[name] for name in ("predicted", "measured")}
        same = abs(row["loss"] / first["loss"] - 1) < SAME_LOSS
        yield row | gains | {"same_loss": None if waits else same}


def _row(planned: PlannedPolicies, policy: str, found: Sequence[Sequence["PolicyStep"]]) -> Result:
    counted = range(1, len(planned.batches))
    measured = sum(max(rank[number].seconds for rank in found) for number in counted)
    plans = [found[0][number].plan for number in counted]
    return {
        "policy": policy,
        "batches": len(counted),
        "tokens": sum(sum(planned.batches[number]) for number in counted),
        "slices": mean(step.schedule.shape.units for step in planned.steps[policy][1:]),
        "predicted": sum(planned.seconds[policy][1:]),
        "measured": measured,
        "planning": mean(plan.making for plan in plans),
        "waiting": mean(plan.waiting for plan in plans),
        "step": measured / len(counted),
        "loss": found[0][-1].loss,
    }


def plan_modelled(settings: BenchSettings) -> PlannedPolicies:
    """Ops that wait for what they take in a large model on GPUs, with few real tokens."""
    from penstock.bench.measure.policy_steps import PolicyRun

    large = ModelConfig(**settings["large"], element_bytes=2)
    layout = _large_layout(settings, large)
    sequence, longest = settings["sequence"], settings["longest"]
    capacity = -(-longest // sequence)
    costs = GroupSetting(large, layout.cluster, sequence, longest, capacity=capacity)
    tokens = TokenCost.of_model(large, weight_read_tokens(large, HARDWARE["h200"]))
    batches = _batches(settings, settings["longest"], settings["median"])
    case = _with_rule(_case(settings, longest, tokens, group_cost(costs)), settings, batches)
    small = ModelConfig(**settings["tiny"], element_bytes=4)
    run = PolicyRun(case, small, settings["divided"], spin(settings["ranks"]))
    steps = _steps(case, batches)
    times = {name: [op_seconds(layout, step) for step in each] for name, each in steps.items()}
    # as long as a device would work in a batch of packed sequences if it did nothing else
    work = max(sum(each.values()) for each in times["pack"][-1]) / settings["devices"]
    unit = settings["seconds"] / work
    waits = {name: [_scaled(each, unit) for each in every] for name, every in times.items()}
    predicted = {
        name: [simulated_seconds(*each) for each in zip(steps[name], waits[name])] for name in steps
    }
    return PlannedPolicies(run, batches, steps, predicted, waits)


def plan_computed(crew: "Crew", settings: BenchSettings) -> PlannedPolicies:
    """Ops of a small model, whose times are measured first."""
    from penstock.bench.measure.policy_steps import PolicyRun, calibrated_ops

    sequence, shorter = settings["sequence"], settings["shorter"]
    longest = settings["longest"] // shorter
    capacity = -(-longest // sequence)
    nothing = GroupCost(0, 1, 0, {d: ExchangeCost() for d in powers_of_two(sequence)}, capacity)
    case = _case(settings, longest, TokenCost(1, 0), nothing)
    run = PolicyRun(case, ModelConfig(**settings["small"], element_bytes=4))
    calibrating = measured_steps(case.whole, longest, sequence)
    seconds = crew.run(calibrated_ops, run, calibrating)
    fitted = FittedTimes(fitted_costs(calibrating, seconds), sequence)
    batches = _batches(settings, longest, settings["median"] / shorter)
    case = replace(case, tokens=fitted.tokens(), groups=fitted.groups(capacity))
    case = _with_rule(case, settings, batches)
    steps = _steps(case, batches)
    predicted = {
        name: [simulated_seconds(step, [fitted.of(step)]) for step in each]
        for name, each in steps.items()
    }
    return PlannedPolicies(replace(run, case=case), batches, steps, predicted, {})


def _batches(settings: BenchSettings, longest: int, median: float) -> list[list[int]]:
    """One more than are counted."""
    scaled = {**settings, "longest": longest, "median": median}
    return [batch_lengths(scaled, number) for number in range(settings["batches"] + 1)]


def _case(
    settings: BenchSettings, longest: int, tokens: TokenCost, groups: GroupCost
) -> PolicyCase:
    names = (settings["schedule"], settings["devices"], settings["sequence"])
    return PolicyCase(*names, longest, SliceRule(longest), tokens, groups)


def _with_rule(case: PolicyCase, settings: BenchSettings, batches: Sequence[Any]) -> PolicyCase:
    """The rule for slices that is fastest of those which keep as many slices as are wanted."""
    with compile_small_work():
        found = choose_rule(case.ragged, batches[:2], lambda batch: True, retain=settings["retain"])
    return replace(case, rule=found.rule)


def _steps(case: PolicyCase, batches: Sequence[list[int]]) -> dict[str, list[ArrangedStep]]:
    with compile_small_work():
        return {name: [make(each) for each in batches] for name, make in case.policies.items()}


def _large_layout(settings: BenchSettings, model: ModelConfig) -> TrainingLayout:
    devices, mesh = settings["devices"], MeshShape(sequence=settings["sequence"])
    cluster = preset_cluster(settings["cluster"])
    cluster = replace(cluster, machine=replace(cluster.machine, gpus=settings["machine"]))
    longest, layers = settings["longest"], model.layers // devices
    return TrainingLayout(
        model,
        sized_for(cluster, mesh.ranks(devices)),
        longest,
        longest,
        settings["schedule"],
        mesh,
        devices,
        layers=(layers,) * devices,
    )


def _scaled(ranks: Sequence[OpSeconds], unit: float) -> list[OpSeconds]:
    return [{op: unit * seconds for op, seconds in each.items()} for each in ranks]
