"""Watches over the ranks of a run, so that a hang is named instead of waited for.

Two side threads of every rank. One beats: it tells the others where this rank is, hears where they
are, and looks whether a cause has been claimed. The other guards the first, because a store that
does not answer holds its caller. An alarm ends the process from the side: the main thread may sit
in a transfer that nothing interrupts.
"""

import time
from threading import Event, Thread
from types import TracebackType

from torch.distributed import DistError

from penstock.run.process.exit_codes import FAILED
from penstock.run.process.neighbour import STOPPED, own_name, state_of
from penstock.run.process.rendezvous import Connection
from penstock.run.watchdog import first_cause
from penstock.run.watchdog.alarm import Patience, silent, stuck
from penstock.run.watchdog.heartbeat import Beat, Ear, hear, send
from penstock.run.watchdog.position import Tracker

BEAT = 0.5
"""Seconds between two beats."""
USUAL_PATIENCE = Patience()
LINGER = 1.0
"""Seconds that the main thread has to leave by itself once a cause is known."""


class Watch:
    """A rank's side threads, from entering to leaving the block.

    Leaving it normally tells the others that this rank has done its part; leaving it by an error
    does not, for then they should notice.
    """

    def __init__(
        self,
        connection: Connection,
        tracker: Tracker,
        patience: Patience = USUAL_PATIENCE,
        *,
        beat: float = BEAT,
    ) -> None:
        self.connection, self.tracker = connection, tracker
        self.patience, self.beat = patience, beat
        self.ear = Ear(connection.rank, connection.world)
        self._store = connection.clone()
        self._stop = Event()
        self._count = 0
        self._still = 0.0
        self._seen: tuple[object, int] = (None, 0)
        self._threads = [
            Thread(target=run, name=run.__name__.strip("_"), daemon=True)
            for run in (self._beats, self._guards)
        ]

    def __enter__(self) -> "Watch":
        if not self.connection.alone:
            self._say()
            for thread in self._threads:
                thread.start()
        return self

    def hear_once(self) -> None:
        """Know the process of every rank that is listened to, now that all have come. One that
        stops before it was heard could not be told from a slow one, and the host of the store
        takes its beats away with it."""
        for rank, beat in hear(self.connection.store, self.ear.others).items():
            self.ear.beats.setdefault(rank, beat)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self.connection.alone:
            return
        for thread in self._threads:
            thread.join(LINGER)
        if error is None:
            done = Beat(self._count + 1, text="has done its part", left=True)
            send(self._store, self.connection.rank, done)
            self._see_off()

    def _see_off(self) -> None:
        """Wait for the others to leave, if the store they use would leave with this rank; as long
        as they give signs of life."""
        place, deadline = self.connection.place, time.monotonic() + self.patience.silent
        others = [rank for rank in range(place.world) if rank != place.rank]
        heard: dict[int, Beat] = {}
        while place.hosts and others and time.monotonic() < deadline:
            beats = hear(self._store, others)
            if beats != heard:
                heard, deadline = beats, time.monotonic() + self.patience.silent
            others = [rank for rank, beat in beats.items() if not beat.left]
            time.sleep(first_cause.STORE_POLL)

    def _beats(self) -> None:
        """Beat until the end, or until there is a reason to leave."""
        last = time.monotonic()
        while not self._stop.wait(self.beat):
            now = time.monotonic()
            elapsed, last = min(now - last, 2 * self.beat), now
            try:
                self._round(elapsed)
            except DistError as error:
                self._abandon(f"is lost: {str(error).splitlines()[0]}")

    def _round(self, elapsed: float) -> None:
        at, step = self.tracker.at, self.tracker.step
        same = at is self._seen[0] and step == self._seen[1]
        self._still = self._still + elapsed if same else 0.0
        self._seen = at, step
        self._say()
        if first_cause.first(self._store):
            self._leave()
        self.ear.listen(self._store, elapsed)
        if text := self._judge():
            if first_cause.claim(self._store, self.connection.rank, text):
                first_cause.say(text)
            self._leave()

    def _say(self) -> None:
        self._count += 1
        beat = Beat.of(self.tracker.position(), self._count, self._still)
        send(self._store, self.connection.rank, beat._replace(process=own_name()))

    def _judge(self) -> str:
        """The alarm, if there is reason for one; only then are all ranks asked."""
        quiet = max(self.ear.silence.values(), default=0.0) >= self.patience.shortest
        still = max((beat.still for beat in self.ear.beats.values()), default=0.0)
        if not quiet and still < self.patience.stuck:
            return ""
        everyone = hear(self._store, list(range(self.connection.world)))
        met = len(everyone) == self.connection.world  # until then one may just not have come yet
        late = silent(self.ear, everyone, self.patience)
        return late or (stuck(everyone, self.patience) if met else "")

    def _guards(self) -> None:
        """Count the rounds in which the beating thread did not come back from the store."""
        seen, quiet = self._count, 0.0
        while not self._stop.wait(self.beat):
            quiet = quiet + self.beat if self._count == seen else 0.0
            seen = self._count
            since = f"has not answered for {quiet:.1f} s"
            if quiet >= self.patience.frozen and self._host_is_stopped():
                self._abandon(f"{since}: rank 0 hosts it and is stopped")
            if quiet >= self.patience.silent:
                self._abandon(since)

    def _host_is_stopped(self) -> bool:
        first = None if self.connection.place.hosted else self.ear.beats.get(0)
        return first is not None and state_of(first.process) == STOPPED

    def _abandon(self, what: str) -> None:
        """Leave without the store, and so without knowing who else says so."""
        if self._stop.is_set():
            return
        place = self.connection.place
        first_cause.say(
            f"the store at {place.address}:{place.port} {what}; "
            f"rank {place.rank} {self.tracker.position().text}"
        )
        first_cause.end_process(FAILED)

    def _leave(self) -> None:
        """Give the main thread a moment, then end the process."""
        if not self._stop.wait(LINGER):
            first_cause.end_process(FAILED)
