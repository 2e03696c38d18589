"""Is a lowered program right? Played step by step, as the strictest legal network would.

Channels are rendezvous: a transfer happens when its send and its receive are both posted, in the
order of the channel. A collective happens when all its devices have joined it, and every device
joins in the same order. Whatever an op reads must be in its device's hands, a slot must be free
when a receive is posted into it, and a buffer is freed once, after its last reader.
"""

from collections import defaultdict, deque
from collections.abc import Iterator

from penstock.check.finding import Finding
from penstock.core.buffers import ALL, BUFFERS, Buf
from penstock.core.gangs import helping_rows
from penstock.core.loans import helps_of, loan_buffer
from penstock.core.meaning import HELPER, LENDER, reads, writes
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.program import Channel, Instr, Program
from penstock.core.schedule import Schedule


def check_program(program: Program) -> tuple[Finding, ...]:
    """Findings about a program; none is a proof for rendezvous channels with its slots."""
    return tuple(_Machine(program).play())


class _Machine:
    """All devices, their hands and the channels between them."""

    def __init__(self, program: Program) -> None:
        self.schedule = program.schedule
        self.steps = [_by_stream(program.instructions(d)) for d in range(self.devices)]
        self.written = _written(self.schedule)
        self.borrowed, self.away = _borrowed(self.schedule), _away(self.schedule)
        self.last_reader = [self._last_readers(device) for device in range(self.devices)]
        self.held: list[set[Buf]] = [set() for _ in range(self.devices)]
        self.slots: dict[tuple[Channel, int], Buf] = {}
        self.sent: dict[Channel, deque[Buf]] = defaultdict(deque)
        self.posted: dict[Channel, deque[tuple[Buf, int]]] = defaultdict(deque)
        self.done: set[Op] = set()
        self.members = _members(program)
        self.turn = {buf: turn for turn, buf in enumerate(self.members)}
        self.joined: dict[Buf, set[int]] = defaultdict(set)
        self.latest = [-1] * self.devices
        """The last collective that each device joined, in the order of all."""

    @property
    def devices(self) -> int:
        return self.schedule.shape.devices

    def play(self) -> Iterator[Finding]:
        """Let every stream run until it has to wait; stop when none can move."""
        moved = True
        while moved:
            moved = False
            for device, streams in enumerate(self.steps):
                for steps in streams.values():
                    while steps and self._ready(device, steps[0]):
                        yield from self._do(device, steps.popleft())
                        moved = True
        yield from self._leftovers()

    def _ready(self, device: int, step: Instr) -> bool:
        if step.op is None:
            return True
        if any(op == step.op and earlier not in self.done for op, earlier in self.schedule.after):
            return False
        of = self._begins_with if step.what == "begin" else self._read
        wanted = of(device, step.op)
        return all(buf in self.held[device] for buf in wanted)

    def _read(self, device: int, op: Op) -> list[Buf]:
        """All that an op needs to end."""
        return [*self._begins_with(device, op), *self.borrowed.get((device, op), ())]

    def _begins_with(self, device: int, op: Op) -> list[Buf]:
        """What an op reads of one unit; what belongs to a whole stage is never freed or moved."""
        if op.kind in STAGE_KINDS or (device, op) in self.away:
            return []
        found = reads(op, self.schedule.shape, self.written)
        bufs = (_whole(buf) for buf in found if BUFFERS[buf.name].per != "home")
        return list(dict.fromkeys(bufs))

    def _last_readers(self, device: int) -> dict[Buf, Op]:
        """The last op of a device that reads each buffer; no buffer is read on two streams."""
        lanes = (ops for at, _, ops in self.schedule.table.lanes() if at == device)
        return {buf: op for ops in lanes for op in ops for buf in self._read(device, op)}

    def _do(self, device: int, step: Instr) -> Iterator[Finding]:
        if step.what == "run" and step.op is not None:
            self._run(device, step.op)
        elif step.what == "free":
            yield from self._free(device, step)
        elif step.what == "join" and step.buf is not None:
            yield from self._join(device, step.buf)
        elif step.channel is not None and step.buf is not None:
            if step.what == "send":
                self.sent[step.channel].append(step.buf)
            else:
                yield from self._post(device, step, step.channel)
            yield from self._transfer(step.channel)

    def _run(self, device: int, op: Op) -> None:
        self.done.add(op)
        if op.kind not in STAGE_KINDS and (device, op) not in self.away:
            self.held[device].update(writes(op, self.schedule.shape))
        for key, buf in list(self.slots.items()):
            if key[0].target == device and self.last_reader[device].get(buf) == op:
                del self.slots[key]
                self.held[device].discard(buf)

    def _join(self, device: int, buf: Buf) -> Iterator[Finding]:
        """Take a device's parts; where all devices have joined, readers have what they need."""
        turn = self.turn[buf]
        if turn <= self.latest[device]:
            yield Finding(
                "collective-order",
                (),
                device,
                f"device {device} joins the collective for {buf} out of order",
                "let all devices join collectives in one order",
            )
        self.latest[device] = turn
        lacking = self.members[buf][device] - self.done
        if lacking:
            yield Finding(
                "collective-order",
                tuple(lacking),
                device,
                f"device {device} joins the collective for {buf} before {min(lacking)}, which "
                "writes a part of it",
                "join after the last part is written",
            )
        self.joined[buf].add(device)
        if len(self.joined[buf]) == len(self.members[buf]):
            for held in self.held:
                held.add(buf)

    def _free(self, device: int, step: Instr) -> Iterator[Finding]:
        buf = step.buf
        assert buf is not None
        last = self.last_reader[device].get(buf)
        if buf not in self.held[device] or (last is not None and last not in self.done):
            yield Finding(
                "lifetime",
                (last,) if last else (),
                device,
                f"device {device} frees {buf}, "
                + (f"which {last} still reads" if last else "twice"),
                "free a buffer once, after its last reader",
            )
        whole = BUFFERS[buf.name].per == "microbatch"
        self.held[device] -= {
            other for other in self.held[device] if other == buf or (whole and other[:3] == buf[:3])
        }

    def _post(self, device: int, step: Instr, channel: Channel) -> Iterator[Finding]:
        assert step.buf is not None
        pending = [slot for _, slot in self.posted[channel]]
        if (channel, step.slot) in self.slots or step.slot in pending:
            yield Finding(
                "slot",
                (),
                device,
                f"device {device} receives {step.buf} into slot {step.slot} of {channel}, which is "
                "still in use",
                "post the receive after the op that reads the slot, or plan more slots",
            )
        self.posted[channel].append((step.buf, step.slot))

    def _transfer(self, channel: Channel) -> Iterator[Finding]:
        """Let every transfer happen whose two ends are posted."""
        while self.sent[channel] and self.posted[channel]:
            sent, (wanted, slot) = self.sent[channel].popleft(), self.posted[channel].popleft()
            if sent != wanted:
                yield Finding(
                    "channel",
                    (),
                    channel.target,
                    f"{channel} sends {sent}, but its receiver expects {wanted}",
                    "post sends and receives of a channel in the same order",
                )
            self.slots[channel, slot] = sent
            self.held[channel.target].add(sent)

    def _leftovers(self) -> Iterator[Finding]:
        """Ops that never ran, and transfers with one end only."""
        for device, streams in enumerate(self.steps):
            for steps in streams.values():
                if steps and steps[0].op is not None:
                    op = steps[0].op
                    lacking = [b for b in self._read(device, op) if b not in self.held[device]]
                    yield Finding(
                        "deadlock",
                        (op,),
                        device,
                        f"{op} never runs on device {device}: it lacks "
                        + (str(lacking[0]) if lacking else "an op that it must come after"),
                        "check the order of receives and the number of slots",
                    )
        for channel in set(self.sent) | set(self.posted):
            if self.sent[channel] or self.posted[channel]:
                yield Finding(
                    "channel",
                    (),
                    channel.source,
                    f"{channel} ends with {len(self.sent[channel])} sends and "
                    f"{len(self.posted[channel])} receives without a partner",
                    "every send needs its receive",
                )


def _borrowed(schedule: Schedule) -> dict[tuple[int, Op], list[Buf]]:
    """What ops read of each other because one helps with attention, by the device of each."""
    found: dict[tuple[int, Op], list[Buf]] = defaultdict(list)
    table = schedule.table
    for number, (*ends, _) in enumerate(helps_of(schedule)):
        for row, meaning in zip(ends, (LENDER, HELPER)):
            found[int(table.device[row]), table.op(row)] += [
                loan_buffer(schedule, ref.buffer, number) for ref in meaning.reads
            ]
    return found


def _away(schedule: Schedule) -> set[tuple[int, Op]]:
    """Members of gangs away from home, which read and write nothing but what they are sent."""
    table = schedule.table
    rows = helping_rows(schedule).nonzero()[0].tolist()
    return {(int(table.device[row]), table.op(row)) for row in rows}


def _whole(buf: Buf) -> Buf:
    """What a reader waits for: a buffer, or what a collective makes of the parts of all shards."""
    return buf._replace(number=ALL) if BUFFERS[buf.name].collective else buf


def _members(program: Program) -> dict[Buf, dict[int, set[Op]]]:
    """For every collective, in the order of all, the ops of each device that write its parts."""
    found: dict[Buf, dict[int, set[Op]]] = {}
    table = program.schedule.table
    for at in range(len(program.collectives)):
        ops: dict[int, set[Op]] = defaultdict(set)
        for row in program.collectives.parts(at):
            ops[int(table.device[row])].add(table.op(row))
        found[program.collectives.buf(at, program.schedule.shape)] = ops
    return found


def _by_stream(steps: list[Instr]) -> dict[str, deque[Instr]]:
    """Instructions of each stream; what follows an op stays on the stream of that op."""
    streams: dict[str, deque[Instr]] = {}
    stream = "compute"
    for step in steps:
        stream = step.stream if step.op is not None else stream
        streams.setdefault(stream, deque()).append(step)
    return streams


def _written(schedule: Schedule) -> frozenset[Buf]:
    """Every buffer instance that some op writes."""
    ops = (op for op in schedule.table.ops() if op.kind not in STAGE_KINDS)
    return frozenset(buf for op in ops for buf in writes(op, schedule.shape))
