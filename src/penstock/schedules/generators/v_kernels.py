"""Loops over V-shaped schedules, many at a time: play, warm up, cool down, fill holes.

A schedule is a row of slots per device; a slot holds the code of a pass (1 down forward, 2 up
forward, 3 up input gradient, 4 down input gradient, 5 weight gradient), or 0. Microbatches are not
written down: the n-th pass of a code is that of microbatch n, and the n-th weight gradient belongs
to the n-th input gradient of the device. A schedule that turns out impossible is marked in `fails`.
Arrays to work in are given, because allocating them in compiled code takes long to compile.
Source: arXiv:2405.15362, section 3 and appendix A.
"""

from typing import Any

from penstock.core.kernel import kernel

ALL_CODES = 0b111110
"""A bit for each code."""


@kernel
def play(
    grid: Any, microbatches: Any, times: Any, plus: Any, minus: Any, hop: Any,
    end: Any, done: Any, began: Any, head: Any, clock: Any, held: Any,
    squeezed: Any, span: Any, peak: Any, fails: Any,
) -> None:  # fmt: skip
    """Run every pass as early as order and dependencies allow; `squeezed` gets it, if given."""
    blocks, devices, length = grid.shape
    written, last = squeezed.shape[0] > 0, devices - 1
    for block in range(blocks):
        moved = True
        while moved and not fails[block]:
            moved = False
            for device in range(devices):
                slot, now, level = head[block, device], clock[block, device], held[block, device]
                while slot < length:
                    code = grid[block, device, slot]
                    if code == 0:
                        slot += 1
                        continue
                    mb, there, wait = done[block, device, code], 0, hop
                    if code == 5:
                        if mb >= done[block, device, 3] + done[block, device, 4]:
                            break
                    elif code > 1 or device > 0:
                        if code % 2 == 1 and device > 0:
                            there = end[block, device - 1, code, mb]
                        elif code % 2 == 0 and device < last:
                            there = end[block, device + 1, code, mb]
                        else:  # a turn: the microbatch comes from this device
                            there, wait = end[block, device, code - 1, mb], 0
                        if there < 0:
                            break
                        now = max(now, there + wait)
                    if code == 1 and mb == 0:
                        began[block, device] = now
                    if written:
                        if now >= length:
                            break
                        squeezed[block, device, now] = code
                    peak[block] = max(peak[block], level + plus[code])
                    level += plus[code] + minus[code]
                    peak[block] = max(peak[block], level)
                    now += times[code]
                    if code < 5:
                        end[block, device, code, mb] = now
                    done[block, device, code] = mb + 1
                    slot += 1
                    moved = True
                head[block, device], clock[block, device], held[block, device] = slot, now, level
        for device in range(devices):
            if done[block, device, 5] < 2 * microbatches:
                fails[block] = 1
            span[block] = max(span[block], clock[block, device] - began[block, device])


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
