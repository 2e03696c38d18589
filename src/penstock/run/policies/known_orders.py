"""Orders that were found before: in this run, and in files for runs to come."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.errors import PenstockError
from penstock.files import FORMATS, load, save_text

_FORMAT = FORMATS["json"]


class KnownOrder(NamedTuple):
    """A schedule, and where it comes from."""

    schedule: Schedule
    why: str


class KnownOrders:
    """Schedules of one run by what they do, and a folder of files by the problem they solve."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._orders: dict[str, KnownOrder] = {}

    def __iter__(self) -> Iterator[KnownOrder]:
        return iter(self._orders.values())

    def add(self, order: KnownOrder) -> None:
        self._orders.setdefault(order.schedule.digest, order)

    def stored(self, signature: str) -> Schedule | None:
        """The order in the file of a problem; None where there is none that can be read."""
        path = self._path(signature)
        try:
            return load(path) if path.is_file() else None
        except PenstockError:
            return None  # it will be found again, and written

    def store(self, signature: str, order: Schedule) -> None:
        """Write the file of a problem; where that fails the run goes on without it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            save_text(self._path(signature), _FORMAT.dumps(order))
        except (OSError, PenstockError):
            return

    def _path(self, signature: str) -> Path:
        return self._folder / f"{signature[:32]}{_FORMAT.suffix}"
