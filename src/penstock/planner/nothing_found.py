"""Why a problem has no candidates, and what to leave out so that it has some.

What the user gives is kept: a schedule without slices is no answer to a number of slices. So some
things that are given have no plan in common. Each of them is left out in turn, to see which one
it is.
"""

from dataclasses import replace
from math import prod

from penstock.arch.layer_split import written_counts
from penstock.arch.mesh_shape import MeshShape, refuse_misfits
from penstock.errors import ShapeError, nearest
from penstock.estimate.layout import refuse_shared_tokens
from penstock.planner.bounding import SharedPieces, possible_entries
from penstock.planner.divisions import divisions, meshes
from penstock.planner.problem import KERNELS, PlanProblem
from penstock.planner.records import all_work
from penstock.planner.variants import variants
from penstock.schedules import Spec


def nothing_found(problem: PlanProblem) -> ShapeError:
    """What to say where the GPUs cannot be divided, the batch not among them, or what is given has
    no plan."""
    replicas = {mesh.replicas for mesh, _ in meshes(problem)}
    if not replicas:
        return _of_mesh(problem)
    rows = problem.fixed.get("rows", 1)
    piece = problem.tokens * rows * min(replicas)
    if problem.batch_tokens % piece:
        return ShapeError(
            f"batch_tokens is {problem.batch_tokens:,}, which is not a multiple of {piece:,}: "
            f"{problem.tokens:,} tokens x {rows} rows x {min(replicas)} replicas",
            hint=f"give {problem.near(piece)}",
        )
    return _of_schedule(problem) or _of_all(problem)


def _of_mesh(problem: PlanProblem) -> ShapeError:
    """Which of the sizes that are given no mesh of the cluster has: of all of them together more or
    fewer ranks, or one that the model has no layers or heads for."""
    gpus, given, layers = problem.cluster.gpus, problem.mesh, problem.model.layers
    sizes = {"sequence": given.get("ring", 1)} | {
        axis: size for axis, size in given.items() if axis != "ring"
    }
    divided = f"{gpus} GPUs cannot be divided by {_mesh_words(problem) or 'any mesh'}"
    if gpus % prod(sizes.values()):
        return ShapeError(divided, hint=f"give sizes whose product divides {gpus}")
    pipeline, tensor = (sizes.get(axis, 1) for axis in ("pipeline", "tensor"))
    if pipeline > layers:
        return ShapeError(
            f"pipeline is {pipeline}, but the model has {layers} layers",
            hint=f"give a pipeline of {layers} or less",
        )
    try:
        sequence = sizes["sequence"]
        mesh = MeshShape(sequence=sequence, ring=given.get("ring", sequence), tensor=tensor)
        refuse_misfits(problem.model, mesh)
        refuse_shared_tokens(problem.model, {"sequence": sequence, "tensor": tensor})
    except ShapeError as error:
        return error
    return ShapeError(divided, hint="leave out one of these sizes")


def _of_schedule(problem: PlanProblem) -> ShapeError | None:
    """What the schedule that is given does not take."""
    name = problem.fixed.get("schedule")
    if name is None:
        return None
    known = {work.spec.name: work.spec for work in all_work()}
    if name not in known:
        return ShapeError(
            f"{name} is not planned with: its order is made for times, or it has stages, slices "
            "or recompute of its own",
            hint="leave --schedule out: `penstock estimate` takes it, with all of a layout given",
        )
    return _of_sizes(problem, known[name]) or _of_options(problem, known[name])


def _of_sizes(problem: PlanProblem, spec: Spec) -> ShapeError | None:
    chunks, slices = problem.fixed.get("chunks"), problem.fixed.get("slices")
    if spec.takes(chunks, slices):
        return None
    takers = [work.spec.name for work in all_work() if work.spec.takes(chunks, slices)]
    others = f", or take one of {', '.join(takers)}" if takers else ""
    if not spec.takes(None, slices):
        return ShapeError(
            f"{spec.name} does not cut sequences into slices, but --slices is {slices}",
            hint=f"leave out --slices{others}",
        )
    return ShapeError(
        f"{spec.name} has {spec.chunks} stage(s) on each device, but --chunks is {chunks}",
        hint=f"leave out --chunks{others}",
    )


def _of_options(problem: PlanProblem, spec: Spec) -> ShapeError | None:
    known = [option.name for option in spec.options]
    for name, _ in problem.fixed.get("options", ()):
        if name not in known:
            hint = nearest(name, known) if known else "leave out --option"
            return ShapeError(f"{spec.name} has no option {name!r}", hint=hint)
    return None


def _of_all(problem: PlanProblem) -> ShapeError:
    """All that is given, and what of it would have to be left out."""
    given = {name: value for name, value in problem.fixed.items() if name not in KERNELS}
    given |= {"mesh": _mesh_words(problem)} if problem.mesh else {}
    said = [f"{_flag(name)} {_words(value)}" for name, value in given.items()]
    helps = [_flag(name) for name in given if has_candidates(_without(problem, name))]
    if not said:
        return ShapeError(
            "no schedule has a plan for these sizes",
            hint="give more GPUs, another batch or another length",
        )
    return ShapeError(
        f"no plan has all that is given: {', '.join(said)}",
        hint=f"leave out {' or '.join(helps)}" if helps else "leave out several of these",
    )


def has_candidates(problem: PlanProblem) -> bool:
    """Whether anything has all that is given."""
    pieces = SharedPieces(problem)
    return any(
        possible_entries(problem, division, variant, pieces.entries(division)).any()
        for division in divisions(problem)
        if pieces.entries(division).entries
        for variant in variants(problem, division)
    )


def _without(problem: PlanProblem, name: str) -> PlanProblem:
    if name == "mesh":
        return replace(problem, mesh={})
    fixed = {each: value for each, value in problem.fixed.items() if each != name}
    return replace(problem, fixed=fixed)


def _flag(name: str) -> str:
    return "--option" if name == "options" else f"--{name}"


def _mesh_words(problem: PlanProblem) -> str:
    return ",".join(f"{axis}={size}" for axis, size in problem.mesh.items())


def _words(value: object) -> str:
    """A value as a flag takes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        numbers = all(isinstance(each, int) for each in value)
        return written_counts(value) if numbers else " ".join(f"{k}={v}" for k, v in value)
    return str(getattr(value, "text", value))
