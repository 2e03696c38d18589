"""Whoever wants to know where a lane is: a watchdog, a recorder. Called around every call."""

from typing import Protocol

from penstock.run.program.calls import Call, Post


class Observer(Protocol):
    """Told by the main thread what it is about to do, and what it has done."""

    def waits(self, call: Call, post: Post) -> None:
        """The call waits for a transfer."""
        ...

    def joins(self, call: Call) -> None:
        """The call waits for a collective, so for all ranks that take part in it."""
        ...

    def copies(self, call: Call) -> None:
        """The call waits for a copy between this device and the host."""
        ...

    def runs(self, call: Call) -> None: ...

    def resumes(self, call: Call) -> None:
        """The call has what it waited for while it ran."""
        ...

    def ran(self, call: Call) -> None: ...


class Quiet:
    """The observer that looks away."""

    def waits(self, call: Call, post: Post) -> None:
        return None

    def joins(self, call: Call) -> None:
        return None

    def copies(self, call: Call) -> None:
        return None

    def runs(self, call: Call) -> None:
        return None

    def resumes(self, call: Call) -> None:
        return None

    def ran(self, call: Call) -> None:
        return None


class Both(Quiet):
    """Two observers as one; the second one is told of a call's inside first."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first, self._second = first, second

    def waits(self, call: Call, post: Post) -> None:
        self._first.waits(call, post)
        self._second.waits(call, post)

    def joins(self, call: Call) -> None:
        self._first.joins(call)
        self._second.joins(call)

    def copies(self, call: Call) -> None:
        self._first.copies(call)
        self._second.copies(call)

    def runs(self, call: Call) -> None:
        self._first.runs(call)
        self._second.runs(call)

    def resumes(self, call: Call) -> None:
        self._first.resumes(call)
        self._second.resumes(call)

    def ran(self, call: Call) -> None:
        self._second.ran(call)
        self._first.ran(call)
