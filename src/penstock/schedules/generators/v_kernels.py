"""Loops over V-shaped schedules, many at a time: play, warm up, cool down, fill holes.

A schedule is a row of slots per device; a slot holds the code of a pass (1 down forward, 2 up
forward, 3 up input gradient, 4 down input gradient, 5 weight gradient), or 0. Microbatches are not
written down: the n-th pass of a code is that of microbatch n, and the n-th weight gradient belongs
to the n-th input gradient of the device. A schedule that turns out impossible is marked in `fails`.
Arrays to work in are given, because allocating them in compiled code takes long to compile.
Source: arXiv:2405.15362, section 3 and appendix A.
"""

from typing import Any

from penstock.core.chain_clock import TIME, advance
from penstock.core.kernel import kernel, part

ALL_CODES = 0b111110
"""A bit for each code."""


@kernel
def play_blocks(
    grid: Any, codes: Any, microbatches: Any, lane_start: Any, lane_stage: Any, kind: Any,
    stage: Any, unit: Any, cells: Any, share: Any, ready: Any, end: Any, lane_peak: Any,
    done: Any, squeezed: Any, span: Any, peak: Any, fails: Any,
) -> None:  # fmt: skip
    """Run every pass as early as order and dependencies allow; `squeezed` gets it, if given."""
    devices = grid.shape[1]
    for block in range(len(grid)):
        if not _unroll(grid[block], codes, microbatches, lane_start, kind, stage, unit, done):
            fails[block] = 1
            continue
        ran = advance(
            lane_start, lane_stage, kind, stage, unit, cells, share, ready, end, lane_peak,
        )  # fmt: skip
        fails[block] = ran < lane_start[devices]
        peak[block] = lane_peak.max()
        for device in range(devices):
            first = end[lane_start[device]] - cells[0, device, TIME]
            span[block] = max(span[block], end[lane_start[device + 1] - 1] - first)
        if len(squeezed) and not fails[block]:
            fails[block] = _put(grid[block], codes, lane_start, cells, end, squeezed[block])


@part
def _unroll(
    rows: Any, codes: Any, microbatches: Any, lane_start: Any, kind: Any, stage: Any, unit: Any,
    done: Any,
) -> bool:  # fmt: skip
    """Write down the passes of a block by kind, stage and microbatch; False if it is impossible.

    `codes` has the kind of a code, and the stage of a code on each device. A weight gradient stands
    behind its input gradient here: it waits for nothing else, whichever microbatch it is of.
    """
    devices, length = rows.shape
    row = 0
    for device in range(devices):
        done[:] = 0
        for slot in range(length):
            code = rows[device, slot]
            if code == 0:
                continue
            if row == len(kind) or (code == 5 and done[5] >= done[3] + done[4]):
                return False
            kind[row], stage[row], unit[row] = codes[0, code], codes[device + 1, code], done[code]
            done[code] += 1
            row += 1
        lane_start[device + 1] = row
        if done[5] != 2 * microbatches or (done[1:5] != microbatches).any():
            return False
    return True


@part
def _put(rows: Any, codes: Any, lane_start: Any, cells: Any, end: Any, squeezed: Any) -> bool:
    """Put every pass of a block into the slot in which it starts; True if one is beyond the end."""
    devices, length = rows.shape
    for device in range(devices):
        row = lane_start[device]
        for slot in range(length):
            code = rows[device, slot]
            if code > 0:
                start = end[row] - cells[codes[0, code], device, TIME]
                if start >= length:
                    return True
                squeezed[device, start] = code
                row += 1
    return False


@kernel
def warm_up(grid: Any, peaks: Any, left: Any, fails: Any) -> None:
    """Rebuild what runs before a device's first down input gradient, as full as `peaks` allows.

    Down forwards fill the way to the first up forward; then both ways in turn; then up input
    gradients with their weight gradients, each followed by a forward that takes its place. `left`
    counts the passes still to be placed, by code.
    """
    blocks, devices, length = grid.shape
    for block in range(blocks):
        for device in range(devices):
            most_up = min(device + 1, peaks[block] // 2)
            most_down = peaks[block] - most_up
            total = slot = 0
            for code in range(6):
                left[code] = 0
            while slot < length and grid[block, device, slot] != 4:
                code = grid[block, device, slot]
                if code > 0:
                    left[code] += 1
                    total += 1
                    grid[block, device, slot] = 0
                slot += 1
            slot, turn, busy = device, 2 * devices - 1 - device, 2 * devices + device
            while total > 0 and slot < length:
                code = 0
                if slot < busy and (slot < turn - 1 or (slot - turn) % 2 == 1):
                    if most_down > 0:
                        most_down -= 1
                        code = 1
                elif slot < busy:
                    if most_up > 0:
                        most_up -= 1
                        code = 2
                elif (slot - busy) % 3 == 0:
                    code = 3
                elif (slot - busy) % 3 == 1:
                    code = 5
                else:
                    code = 2 if left[2] > 0 else 1
                if code > 0 and left[code] > 0:
                    if grid[block, device, slot] > 0:
                        fails[block] = 1
                    grid[block, device, slot] = code
                    left[code] -= 1
                    total -= 1
                slot += 1


@kernel
def cool_down(grid: Any, peaks: Any, turns: Any, microbatches: Any, stage: Any, fails: Any) -> None:
    """Let the last input gradients follow each other without a gap behind `turns`.

    Their weight gradients fill what is left. `stage` holds the codes of a device's input gradients
    in their order, and `turns` the slot of the first device's last up forward.
    """
    blocks, devices, length = grid.shape
    for block in range(blocks):
        most_down = min((peaks[block] + 1) // 2, microbatches)
        most_up = min(peaks[block] - most_down, microbatches)
        for device in range(devices):
            inputs = down = up = due = 0
            for slot in range(length):
                code = grid[block, device, slot]
                if code == 3 or code == 4:
                    stage[inputs] = code
                    inputs += 1
            for slot in range(length - 1, -1, -1):
                code = grid[block, device, slot]
                if code == 4 and down < most_down:
                    grid[block, device, slot] = 0
                    down += 1
                elif code == 3 and up < min(device + 1, most_up):
                    grid[block, device, slot] = 0
                    up += 1
            # Their weight gradients, and so many that the peak could be made of them.
            rest_down, rest_up, rest, end = down, up, peaks[block], length
            while end > 0 and (
                grid[block, device, end - 1] != 5 or max(rest_down, rest_up, rest) > 0
            ):
                end -= 1
                if grid[block, device, end] == 5:
                    grid[block, device, end] = 0
                    inputs -= 1
                    rest -= rest > 0
                    rest_down -= stage[inputs] == 4 and rest_down > 0
                    rest_up -= stage[inputs] == 3 and rest_up > 0
            for number in range(down + up):
                code, slot = 4, turns[block] - device + 2 * (devices - number)
                if number >= down:
                    code, slot = 3, turns[block] + 1 + device - 2 * (number - down)
                if slot < 0 or slot >= length or grid[block, device, slot] > 0:
                    fails[block] = 1
                else:
                    grid[block, device, slot] = code
            for slot in range(length):
                code = grid[block, device, slot]
                if code == 3 or code == 4:
                    due += 1
                elif code == 5:
                    due -= 1
                elif code == 0 and slot >= end and due > 0:
                    grid[block, device, slot] = 5
                    due -= 1


@kernel
def fill_holes(grid: Any, peaks: Any, ends: Any, at: Any, done: Any, held: Any) -> None:
    """From left to right, fill each hole with the next pass of its device that may move there.

    `ends` has the last slot in use of each device, `at` the slots of the passes so far.
    """
    blocks, devices, length = grid.shape
    last = devices - 1
    for block in range(blocks):
        for slot in range(length):
            for device in range(devices):
                code = grid[block, device, slot]
                later, seen = slot + 1, 0
                level = most = held[block, device]
                while code == 0 and seen < ALL_CODES and later <= ends[block, device]:
                    other = grid[block, device, later]
                    if other > 0 and not seen & (1 << other):
                        seen |= 1 << other
                        mb = done[block, device, other]
                        if other == 5:
                            movable = mb < done[block, device, 3] + done[block, device, 4]
                        elif other % 2 == 1 and device > 0:
                            movable = at[block, device - 1, other, mb] < slot
                        elif other % 2 == 0 and device < last:
                            movable = at[block, device + 1, other, mb] < slot
                        else:
                            movable = other == 1 or done[block, device, other - 1] > mb
                        # A forward that moves takes memory all the way to where it stood.
                        if movable and (other > 2 or most < peaks[block]):
                            code = other
                            grid[block, device, slot], grid[block, device, later] = code, 0
                    if other == 1 or other == 2:
                        level += 1
                    elif other == 5:
                        level -= 1
                    most = max(most, level)
                    later += 1
                if code > 0:
                    if code < 5:
                        at[block, device, code, done[block, device, code]] = slot
                        held[block, device] += code <= 2
                    else:
                        held[block, device] -= 1
                    done[block, device, code] += 1
