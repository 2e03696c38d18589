"""One rank's place on the grid, and the groups it belongs to.

Every rank has to take part in the making of every group, in the same order: groups that only their
members make have been seen to hang. So groups come from one pool, and whoever needs one asks on all
ranks.
"""

from collections.abc import Sequence
from math import prod

from torch import distributed
from torch.distributed import ProcessGroup

from penstock.arch.cell_shape import ONE_RANK, CellPlace, CellShape
from penstock.arch.mesh_shape import COPY_AXES
from penstock.errors import RunError
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.tokens import ALL_TOKENS, Replicated, Scattered
from penstock.run.comm.cell_group import CellGroup
from penstock.run.comm.grid import GRID_AXES, SEQUENCE, Grid, spelled_out
from penstock.run.comm.group_pool import GROUP_POOL


class Mesh:
    """A rank among replicas of a pipeline, each spread over its devices."""

    def __init__(self, grid: Grid, rank: int = 0) -> None:
        self.grid, self.rank = grid, rank
        here = grid.coordinates(rank)
        self.replicas, self.devices = grid.replica, grid.device
        self.replica, self.device, self.tensor = (
            here[axis] for axis in ("replica", "device", "tensor")
        )
        self._groups: dict[object, ProcessGroup | None] = {}

    @property
    def pipeline(self) -> ProcessGroup | None:
        """The devices of this replica; a member's number there is its device."""
        return self.along("device")

    @property
    def copies(self) -> ProcessGroup | None:
        """The ranks that hold the same weights: in all replicas, and those that share tokens. They
        add up gradients while the same ranks may exchange tokens, so the group is another one."""
        return self._one_of("copies", self.grid.groups(*COPY_AXES))

    @property
    def shards(self) -> ProcessGroup | None:
        """The ranks that share the vocabulary where every device has a shard of it: all devices of
        this replica, and the ranks that share their matrices. They are on their way to each other
        while the same ranks send and add up other things, so the group is another one."""
        return self._one_of("shards", self.grid.groups("device", "tensor"))

    @property
    def place(self) -> CellPlace:
        """Where this rank stands in its cell."""
        here = self.grid.coordinates(self.rank)
        return CellPlace(here["tensor"], here["ulysses"], here["ring"])

    @property
    def copy_count(self) -> int:
        """Ranks that hold the same weights as this one, and itself."""
        return prod(self.grid.size(axis) for axis in COPY_AXES)

    def sharers(self, ranks: int) -> ProcessGroup | None:
        """This rank and others that hold the same weights, so many in the order of their ranks, who
        share what they hold; 0 stands for all of them."""
        if ranks in (0, self.copy_count):
            return self.copies
        sets = [sorted(each) for each in self.grid.groups(*COPY_AXES)]
        chosen = [each[n : n + ranks] for each in sets for n in range(0, len(each), ranks)]
        return self._one_of(("sharers", ranks), chosen)

    def across(self, ranks: int) -> ProcessGroup | None:
        """The ranks that have the same share as this one, where so many share; None where no other
        has."""
        if ranks in (0, self.copy_count):
            return None
        sets = [sorted(each) for each in self.grid.groups(*COPY_AXES)]
        return self._one_of(("across", ranks), [e[n::ranks] for e in sets for n in range(ranks)])

    @property
    def counts(self) -> bool:
        """Whether what all copies have is counted by this one."""
        here = self.grid.coordinates(self.rank)
        return not any(here[axis] for axis in COPY_AXES)

    def counts_dealt(self, replicas: int) -> bool:
        """The same of what one of so many replicas has."""
        here = self.grid.coordinates(self.rank)
        return here["replica"] < replicas and not any(here[axis] for axis in SEQUENCE)

    def holders(self, among: Sequence[range]) -> ProcessGroup | None:
        """The ranks of this one's range, of those that share the matrices of a device; for sums
        at the end of a step, which other sums of the same ranks must not meet."""
        chosen = [
            [ranks[at] for at in members]
            for ranks in self.grid.groups("tensor")
            for members in among
        ]
        return self._one_of(("holders", *among), chosen)

    def cell(self, shape: CellShape = ONE_RANK) -> Cell:
        """How this rank shares the work of its device; `shape` says what its sizes do not."""
        tensor, ulysses, ring = (self._member(axis) for axis in ("tensor", "ulysses", "ring"))
        experts = self.expert_sharers(shape.experts) if shape.experts > 1 else None
        others = (ulysses, ring, CellGroup(experts) if experts else None)
        if tensor is None:
            return Cell(None, ALL_TOKENS, *others)
        tokens = Scattered(tensor) if shape.norms == "scattered" else Replicated(tensor)
        return Cell(tensor, tokens, *others)

    def expert_sharers(self, replicas: int) -> ProcessGroup | None:
        """The same rank of so many neighbouring replicas, which exchange tokens for experts while
        gradients are added up: the group is another one."""
        sets = self.grid.groups("replica")
        chosen = [each[n : n + replicas] for each in sets for n in range(0, len(each), replicas)]
        return self._one_of(("experts", replicas), chosen)

    def expert_copies(self, replicas: int) -> ProcessGroup | None:
        """The ranks that hold the same experts, where so many replicas share them: in every so many
        of all replicas, and those that share tokens. For sums at the end of a step."""
        chosen = [
            [rank for rank in each if self.grid.coordinates(rank)["replica"] % replicas == own]
            for each in self.grid.groups(*COPY_AXES)
            for own in range(replicas)
        ]
        return self._one_of(("expert copies", replicas), chosen)

    def sharing_tokens(self, ranks: int) -> ProcessGroup | None:
        """This rank and its neighbours in a group of so many that exchange tokens for heads; None
        where it is alone, or in no such group. Asked for by all ranks, for the same sizes."""
        if ranks == self.grid.ulysses:
            return self.along("ulysses")
        sets = self.grid.groups("ulysses")
        whole = [range(n, n + ranks) for n in range(0, self.grid.ulysses - ranks + 1, ranks)]
        chosen = [[each[at] for at in members] for each in sets for members in whole]
        return self._one_of(("sharing tokens", ranks), chosen)

    def _member(self, axis: str) -> CellGroup | None:
        group = self.along(axis)
        return CellGroup(group) if group is not None else None

    @property
    def world(self) -> ProcessGroup | None:
        """All ranks, where there are others to talk to."""
        return distributed.group.WORLD if self.grid.ranks > 1 else None

    @property
    def beside(self) -> ProcessGroup | None:
        """All ranks once more, for sums of host tensors that go on beside everything else."""
        return self._one_of("beside", [[*range(self.grid.ranks)]], "gloo")

    @property
    def whole_replica(self) -> ProcessGroup | None:
        """All ranks of this replica."""
        others = tuple(axis for axis in GRID_AXES if axis != "replica")
        return self.along(*others) if self.replicas > 1 else self.world

    def along(self, *axes: str) -> ProcessGroup | None:
        """The ranks that differ from this one on these axes alone; None where it is alone."""
        long = tuple(axis for axis in axes if self.grid.size(axis) > 1)
        return self._one_of(long, self.grid.groups(*long))

    def among(self, devices: tuple[int, ...]) -> ProcessGroup | None:
        """Some devices of this replica; asked for by all ranks, also those outside of it."""
        chosen = [[ranks[d] for d in devices] for ranks in self.grid.groups("device")]
        return self._one_of(("device", devices), chosen)

    def pair(self, source: int, target: int) -> ProcessGroup | None:
        """Two devices, for what one of them sends to the other and for nothing else."""
        chosen = [[ranks[d] for d in (source, target)] for ranks in self.grid.groups("device")]
        return self._one_of(("pair", source, target), chosen)

    def take_number(self) -> int:
        """Another number each time. Who asks for the same reason gets the same on all ranks, as
        they build the same things in the same order."""
        return GROUP_POOL.take_number()

    def ranks_of(self, replica: int) -> list[int]:
        """The ranks of one replica's pipeline, in the order of their devices."""
        here = self.grid.coordinates(self.rank)
        places = (here | {"replica": replica, "device": d} for d in range(self.devices))
        return [self.grid.rank(place) for place in places]

    def _one_of(
        self, key: object, groups: list[list[int]], backend: str | None = None
    ) -> ProcessGroup | None:
        """The group of this rank, made on all ranks when it is first asked for."""
        if key not in self._groups:
            asked = groups if self.world is not None else []
            self._groups[key] = GROUP_POOL.own(key, asked, backend)
        return self._groups[key]


def make_mesh(
    replicas: int, devices: int, cell: CellShape | None = None, order: Sequence[str] = GRID_AXES
) -> Mesh:
    """The mesh over all ranks that were started; axes from the slowest to the fastest."""
    started = distributed.is_initialized()
    world, rank = (distributed.get_world_size(), distributed.get_rank()) if started else (1, 0)
    shape = cell or CellShape()
    sizes = (replicas, devices, shape.ring, shape.ulysses, shape.tensor)
    grid = Grid(*sizes, spelled_out(order))
    if grid.ranks != world:
        cells = f" of {shape.ranks} ranks each" if shape.ranks > 1 else ""
        raise RunError(
            f"{replicas} replica(s) x {devices} device(s){cells} need {grid.ranks} ranks, but "
            f"{world} were started",
            hint=f"start {grid.ranks} ranks, or set devices and replicas to match",
        )
    mesh = Mesh(grid, rank)
    for axis in GRID_AXES:
        mesh.along(axis)
    _ = mesh.copies
    return mesh
