"""Ways to divide a cluster: ranks that share matrices, tokens, layers and sequences.

All sizes divide the GPUs of the cluster. Ranks that share matrices stay in one machine: their sums
are waited for in every layer. Where ranks share tokens, they exchange heads, or pass keys and
values round, or as much of both as there are heads for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.arch.mesh_shape import MeshShape, refuse_misfits
from penstock.errors import ShapeError
from penstock.estimate.layout import TrainingLayout, refuse_shared_tokens
from penstock.planner.problem import PlanProblem

ROWS = (1, 2, 4)
"""Sequences side by side that are tried."""
FEWEST_SHARED_TOKENS = 256
"""Tokens of a rank below which sequences are not divided any more."""


Kind = tuple[int, int, int]
"""Ranks that share matrices, tokens and layers."""


def kind_of(layout: TrainingLayout) -> Kind:
    """Of which kind a layout is."""
    return (layout.mesh.tensor, layout.mesh.sequence, layout.pipeline)


@dataclass(frozen=True)
class Division:
    """A mesh with its pipeline, and what each replica does with it."""

    mesh: MeshShape
    pipeline: int
    rows: int
    microbatches: int

    @property
    def kind(self) -> Kind:
        """Ranks that share matrices, tokens and layers."""
        return (self.mesh.tensor, self.mesh.sequence, self.pipeline)

    @property
    def copies(self) -> int:
        """Ranks that hold the same weights."""
        return self.mesh.replicas * self.mesh.sequence

    @property
    def in_cell(self) -> int:
        return self.mesh.cell.ranks


def divisions(problem: PlanProblem) -> Iterator[Division]:
    """All that suit the model and the batch, small groups first."""
    for mesh, pipeline in meshes(problem):
        rows = (problem.fixed["rows"],) if "rows" in problem.fixed else ROWS
        for count in rows:
            microbatches, left = divmod(problem.sequences, mesh.replicas * count)
            if microbatches and not left:
                yield Division(mesh, pipeline, count, microbatches)


def meshes(problem: PlanProblem) -> Iterator[tuple[MeshShape, int]]:
    """Meshes that fill the cluster, each with the devices of its pipeline."""
    gpus, given = problem.cluster.gpus, problem.mesh
    near = _divisors(problem.cluster.machine.gpus)
    for tensor in _given(given, "tensor", [each for each in near if gpus % each == 0]):
        sequences = [
            each
            for each in _divisors(gpus)
            if each == 1 or problem.tokens // each >= FEWEST_SHARED_TOKENS
        ]
        for sequence in _given(given, "sequence", sequences):
            for pipeline in _given(given, "pipeline", _divisors(gpus)):
                inside = tensor * sequence * pipeline
                if pipeline > problem.model.layers or gpus % inside:
                    continue
                replicas = gpus // inside
                if given.get("replicas", replicas) == replicas:
                    for mesh in _rings(problem, (replicas, sequence, tensor)):
                        yield mesh, pipeline


def _rings(problem: PlanProblem, sizes: tuple[int, int, int]) -> Iterator[MeshShape]:
    """Heads exchanged only, both with the shortest ring, and passed round only."""
    replicas, sequence, tensor = sizes
    shortest = [ring for ring in _divisors(sequence) if _possible(problem, sizes, ring)][:1]
    for ring in sorted({*_given(problem.mesh, "ring", [*shortest, sequence])}):
        if _possible(problem, sizes, ring):
            yield MeshShape(replicas, sequence, ring, tensor, norms=problem.norms)  # type: ignore[arg-type]


def _possible(problem: PlanProblem, sizes: tuple[int, int, int], ring: int) -> bool:
    replicas, sequence, tensor = sizes
    try:
        refuse_misfits(problem.model, MeshShape(replicas, sequence, ring, tensor))
        refuse_shared_tokens(problem.model, {"sequence": sequence, "tensor": tensor})
    except ShapeError:
        return False
    return True


def _given(mesh: object, axis: str, sizes: list[int]) -> list[int]:
    """The size that the user gave, or all."""
    assert isinstance(mesh, dict)
    return [mesh[axis]] if axis in mesh else sizes


def _divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})
