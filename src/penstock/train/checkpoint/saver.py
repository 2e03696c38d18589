"""A run's checkpoints: written beside the training, found again, and kept to a number.

Training must not wait for a disk. `save` copies the tensors to the host and returns; a thread
writes the copy. Only one save is in flight at a time, and what goes wrong in it is raised by the
next call. Every rank makes the same calls in the same order.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from penstock.errors import RunError, ShapeError
from penstock.files.durable import Disk, reason
from penstock.model.io.tensor_block import Tensors
from penstock.run.comm.group_pool import GROUP_POOL
from penstock.train.checkpoint import folders
from penstock.train.checkpoint.copies import Content, capture, share_of
from penstock.train.checkpoint.find import Found, newest
from penstock.train.checkpoint.load import load_checkpoint
from penstock.train.checkpoint.ranks import Ranks


class Checkpoints:
    """The checkpoints of one run, in one folder that all its ranks see."""

    def __init__(
        self,
        folder: str | Path,
        *,
        keep: int = 3,
        group: dist.ProcessGroup | None = None,
        disk: Disk | None = None,
    ) -> None:
        """`group` is a gloo group that nobody else uses: a thread speaks through it."""
        self.folder = Path(folder)
        self._keep = keep
        self._ranks = Ranks(group or _own_group())
        self._disk = disk or Disk()
        self._flight: Future[None] | None = None
        self._write = _writer()
        if keep < 1:
            raise ShapeError(
                f"{keep} checkpoints cannot be kept", hint="keep 1 or more, 2 to be safe"
            )
        self._ranks.first(self._prepare)

    def save(self, step: int, tensors: Tensors, state: Mapping[str, Any]) -> None:
        """Store the values of this moment; returns when they are copied, not when they are safe."""
        self.wait()
        if step < 0:
            raise ShapeError(f"step {step} cannot be saved", hint="steps count from 0")
        text = _spelled({**state, "step": step, "torch": torch.__version__})
        content = Content(step, capture(tensors), text)
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._flight = thread.submit(self._save, content)
        thread.shutdown(wait=False)

    def wait(self) -> None:
        """Wait for the save in flight, if there is one, and raise what went wrong in it."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.result()

    def newest(self) -> Found | None:
        """The newest checkpoint that is whole, the same on all ranks."""
        return self.newest_of(self.folder)

    def newest_of(self, folder: str | Path) -> Found | None:
        """The newest of another run, which may be writing one just now: the same on all ranks."""
        self.wait()
        return newest(Path(folder), self._ranks)

    def set_aside(self) -> None:
        """Put what is there beside, under another name: a run that starts anew must not meet it
        when it goes on."""
        self.wait()
        self._ranks.first(self._move)

    def _move(self) -> None:
        if not folders.steps(self.folder):
            return
        try:
            self._disk.rename(self.folder, _free(self.folder))
            self._disk.make(self.folder)
        except OSError as error:
            raise RunError(
                f"the checkpoints in {self.folder} cannot be moved aside: {reason(error)}",
                hint="give the run another folder",
            ) from None

    def load(self, found: Found, tensors: Tensors) -> None:
        """Fill the tensors; all ranks together ask for everything that was saved."""
        self.wait()
        load_checkpoint(found, tensors, self._ranks)

    def _prepare(self) -> None:
        try:
            self._disk.make(self.folder)
            folders.tidy(self.folder, self._disk)
        except OSError as error:
            raise RunError(
                f"checkpoints cannot be kept in {self.folder}: {reason(error)}",
                hint="give a folder that can be written",
            ) from None

    def _save(self, content: Content) -> None:
        """What the thread does."""
        try:
            self._refuse_other_states(content.state)
            own = content._replace(blocks=share_of(content.blocks, self._ranks))
            self._write(self.folder, own, self._ranks, self._disk)
        except RunError as error:
            raise RunError(
                f"step {content.step} was not saved: {error.message}; nothing saved before is lost",
                hint=error.hint or f"see that {self.folder} can be written and has free space",
            ) from error
        self._ranks.first(lambda: self._prune(content.step))

    def _refuse_other_states(self, own: str) -> None:
        states = self._ranks.together(lambda: own)
        for rank, state in enumerate(states):
            if state != states[0]:
                raise RunError(
                    f"rank {rank} saves the state {state}, but rank 0 {states[0]}",
                    hint="the state is stored once and must be the same on all ranks",
                )

    def _prune(self, step: int) -> None:
        try:
            folders.prune(self.folder, step, self._keep, self._disk)
        except OSError as error:
            raise RunError(
                f"step {step} is saved, but an older one cannot be deleted: {reason(error)}",
                hint=f"see that {self.folder} can be written",
            ) from None


def _free(folder: Path) -> Path:
    """A name beside a folder that nothing has: `checkpoints.previous`, `checkpoints.previous-2`."""
    names = (f"{folder.name}.previous{f'-{turn}' if turn > 1 else ''}" for turn in count(1))
    return next(path for name in names if not (path := folder.with_name(name)).exists())


def _own_group() -> dist.ProcessGroup | None:
    """A group of all ranks for checkpoints alone; none where there is one process."""
    if not dist.is_available() or not dist.is_initialized():
        return None
    return GROUP_POOL.own("checkpoints", [[*range(dist.get_world_size())]], "gloo")


def _spelled(state: Mapping[str, Any]) -> str:
    try:
        return json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RunError(
            f"the state of a checkpoint cannot be written as JSON: {error}",
            hint="a state has texts, finite numbers, lists and objects",
        ) from None


def _writer() -> Callable[[Path, Content, Ranks, Disk], None]:
    """What writes a checkpoint: imported before the first step of a run, not by its first save."""
    from penstock.train.checkpoint.write import write_checkpoint  # deferred: see storage.py

    return write_checkpoint
