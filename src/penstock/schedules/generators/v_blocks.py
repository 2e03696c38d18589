"""All V-shaped building blocks of a family, as arrays: one row per block.

A search over blocks looks at hundreds of them, and most fall over a collision or need too much
memory. Both follow from the starts of one microbatch, so they are found for all blocks at once,
before any schedule is built. A block is decided by the residues of its passes on the first device
and by how far they move from device to device. Source: arXiv:2405.15362, section 3 and appendix A.
"""

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

PassInts = NDArray[np.int64]
"""Ints of passes are by block, device and pass: forward of the stage on the way down and of the
one on the way up, input gradient up and down, weight gradient up and down."""
PassGrid = NDArray[np.uint8]
"""Codes of passes by block, device and slot; 0 where nothing runs."""

INTERVAL = 6
"""Work of one microbatch on one device, in passes of equal time."""
WEIGHT = 5
"""Code of a weight gradient of either stage; the code of another pass is 1 + its number."""
STEPS = range(1, INTERVAL)
"""How far down forward and up input gradient may move per device; the others move by -1."""


def v_blocks(devices: int) -> PassInts:
    """Every block of the family without a collision, each as early as its residues allow."""
    residues = _without_collision(_residues(devices))
    starts = np.empty((*residues.shape[:2], INTERVAL), np.int64)
    now = np.full(len(residues), -1)
    for number in range(4):
        downwards = number % 2 == 0
        for device in range(devices) if downwards else reversed(range(devices)):
            now = _next(now, residues[:, device, number])
            starts[:, device, number] = now
    _put_weights(starts)
    return starts


def _residues(devices: int) -> PassInts:
    """Where the passes that others wait for fall in the interval."""
    first = np.array([(0, *rest) for rest in permutations(STEPS, 3)])
    moves = np.array(_moves(devices))
    back = -np.broadcast_to(np.arange(devices), moves.shape)
    shift = np.stack([moves, back, moves, back], axis=-1)
    residues: PassInts = (first[:, None, None] + shift[None]) % INTERVAL
    return residues.reshape(-1, devices, 4)


def _moves(devices: int) -> list[Any]:
    """How far a pass has moved on each device: by one step up to a device, then by a smaller."""
    at = np.arange(devices)
    return [
        wide * np.minimum(at, turn) + narrow * np.maximum(at - turn, 0)
        for wide in STEPS
        for narrow in range(1, wide + 1)
        for turn in range(1, max(devices, 2))
        if (narrow < wide if turn < devices - 1 else narrow == 1)
    ]


def _without_collision(residues: PassInts) -> PassInts:
    """Blocks whose passes meet nowhere; what moves together stays apart as on the first device."""
    meet = [residues[..., moved] == residues[..., other] for moved in (0, 2) for other in (1, 3)]
    apart: PassInts = residues[~np.logical_or.reduce(meet).any(axis=1)]
    return apart


def _next(now: PassInts, residue: PassInts) -> PassInts:
    """The first time after `now` with a residue."""
    later: PassInts = now + 1 + (residue - now - 1) % INTERVAL
    return later


def _put_weights(starts: PassInts) -> None:
    """A weight gradient goes to the first residue behind its input gradient that is free."""
    taken = starts[..., :4] % INTERVAL
    for number in (2, 3):
        now = starts[..., number] + 1
        for _ in range(INTERVAL - 1):
            busy = (taken == (now % INTERVAL)[..., None]).any(axis=-1)
            now = now + busy
        starts[..., number + 2] = now
        taken = np.concatenate([taken, now[..., None] % INTERVAL], axis=-1)


def block_peaks(starts: PassInts) -> PassInts:
    """Activations of a stage that the fullest device of each block holds, repeated for ever."""
    forward, weight = starts[..., :2], starts[..., [5, 4]]
    held = [
        ((moment[..., None] - forward) // INTERVAL - (moment[..., None] - weight) // INTERVAL).sum(
            axis=-1
        )
        for moment in (forward[..., 0], forward[..., 1])
    ]
    most: PassInts = np.maximum(*held).max(axis=1)
    return most


def repeat(starts: PassInts, microbatches: int, length: int) -> PassGrid:
    """Blocks stamped once per microbatch."""
    grid = np.zeros((*starts.shape[:2], length), np.uint8)
    block, device, number, mb = np.indices((*starts.shape, microbatches), sparse=True)
    grid[block, device, starts[..., None] + INTERVAL * mb] = np.minimum(number + 1, WEIGHT)
    return grid
