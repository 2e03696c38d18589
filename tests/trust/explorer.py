"""The second opinion on the checker: counts the pieces, looks at their places, plays the game.

The checker derives a graph from a table of reads and writes, and looks for cycles in it. The
explorer has neither: it knows which pieces of work a world must contain, and tries to do them.
"""

from collections import defaultdict
from dataclasses import dataclass

from .board import Board, Play, run
from .world import COPY, SHARD, Work, World


@dataclass(frozen=True)
class Verdict:
    """How a play ends: `ok`, or what is wrong and with which work."""

    fault: str
    works: frozenset[Work] = frozenset()


def explore(play: Play) -> Verdict:
    """The first thing that is wrong with a play.

    count    work that is missing, superfluous, done twice, or does not exist in this world
    place    work on a stream or a vocabulary shard's device where it cannot be
    home     weights, or what a microbatch left behind on a device, needed on another device
    note     a note about work that is not there, or not where the note needs it
    order    all shards speak to each other about slices in different orders
    stuck    lanes that wait for each other for ever
    """
    looks = (miscounted, misplaced, homeless, misnoted, disordered, stuck)
    names = ("count", "place", "home", "note", "order", "stuck")
    for name, look in zip(names, looks):
        works = look(play)
        if works:
            return Verdict(name, frozenset(works))
    return Verdict("ok")


def miscounted(play: Play) -> set[Work]:
    """Work that stands in the lanes too often, or should not or should have been there."""
    wrong = set()
    kinds: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    shards: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    for work, places in play.places.items():
        kind, stage, mb, slice = work
        once = len(set(places)) == len(places) if work in play.gangs else len(places) == 1
        if not once:
            wrong.add(work)
        (shards if kind in SHARD else kinds)[stage, mb, slice].add(kind)
    world = play.world
    for unit in world.units():
        for stage in range(world.stages):
            wrong |= _wrong_kinds(kinds.pop((stage, *unit), set()), (stage, *unit), world)
        for shard in range(world.devices):
            found = shards.pop((shard, *unit), set())
            wrong |= {(kind, shard, *unit) for kind in found ^ world.shard_kinds()}
    for rest in (kinds, shards):
        wrong |= {(kind, *where) for where, found in rest.items() for kind in found}
    return wrong


def _wrong_kinds(found: set[str], where: tuple[int, int, int], world: World) -> set[Work]:
    """The difference from the nearest legal set of kinds."""
    if found in world.recipes(where[0]):
        return set()
    differences = ("".join(sorted(found ^ legal)) for legal in world.recipes(where[0]))
    return {(kind, *where) for kind in min(differences, key=lambda kinds: (len(kinds), kinds))}


def misplaced(play: Play) -> set[Work]:
    """Copies outside copy lanes, compute outside compute lanes, shards on another's device."""
    wrong = set()
    for (device, stream), works in play.lanes.items():
        for work in works:
            belongs = "copy" if work[0] in COPY else "compute"
            if stream != belongs or (work[0] in SHARD and work[1] != device):
                wrong.add(work)
    return wrong


def homeless(play: Play) -> set[Work]:
    """Work whose stage has too many homes, or that stands apart from the rest of its microbatch.

    Only outputs and input gradients travel. Weights have `copies` homes, and everything else that
    a stage keeps of a microbatch stays on one device. A gang has a member there, whom others help.
    """
    devices_of_stage: dict[int, set[int]] = defaultdict(set)
    devices_of_mb: dict[tuple[int, int], set[int]] = defaultdict(set)
    alone = [work for work in play.places if work not in play.gangs and work[0] not in SHARD]
    for work in alone:
        device = play.places[work][0][0]
        devices_of_stage[work[1]].add(device)
        devices_of_mb[work[1], work[2]].add(device)
    abroad = {
        work
        for work in play.gangs & play.places.keys()
        if not _devices(play, work)
        & (devices_of_mb[work[1], work[2]] or devices_of_stage[work[1]] or _common(play, work[1]))
    }
    return abroad | {
        work
        for work in alone
        if len(devices_of_mb[work[1], work[2]]) > 1
        or (
            work[1] not in play.world.weightless
            and len(devices_of_stage[work[1]]) > play.world.copies
        )
    }


def _devices(play: Play, work: Work) -> set[int]:
    return {device for device, _ in play.places[work]}


def _common(play: Play, stage: int) -> set[int]:
    """Devices that are in all gangs of a stage."""
    gangs = [_devices(play, work) for work in play.gangs & play.places.keys() if work[1] == stage]
    return set.intersection(*gangs)


def misnoted(play: Play) -> set[Work]:
    """Noted work that is absent, a gang of one, and strands of a pair that are not side by side."""
    notes = [*play.pairs, *play.loans, *play.after]
    wrong = {work for note in notes for work in note if work not in play.places}
    wrong |= {work for work in play.gangs if len(play.places.get(work, ())) < 2}
    for strands in play.pairs:
        if wrong.isdisjoint(strands) and not _side_by_side(play, strands):
            wrong |= set(strands)
    return wrong


def _side_by_side(play: Play, strands: tuple[Work, ...]) -> bool:
    lane = play.lanes[play.places[strands[0]][0]]
    first = min((lane.index(work) for work in strands if work in lane), default=0)
    return set(lane[first : first + len(strands)]) == set(strands)


def disordered(play: Play) -> set[Work]:
    """Vocabulary work that does not come in the same order on all shards.

    Each pass of the vocabulary ends or begins with an exchange between all devices, and they must
    enter their exchanges in one order (arXiv:2411.05288).
    """
    wrong = set()
    for kind in play.world.shard_kinds():
        orders = {
            place: [work[2:] for work in works if work[0] == kind]
            for place, works in play.lanes.items()
            if place[1] == "compute"
        }
        for place, order in orders.items():
            for mine, others in zip(order, zip(*orders.values())):
                if set(others) != {mine}:
                    wrong.add((kind, place[0], *mine))
    return wrong


def stuck(play: Play) -> set[Work]:
    """Where lanes stand still at the end of the game, if they do not reach their ends."""
    return set(run(Board(play)).heads())
