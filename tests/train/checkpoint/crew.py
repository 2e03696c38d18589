"""Real processes that save and load together, started once and given one task after another."""

import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from files.faulty_disk import FaultyDisk, full
from fork_server import CONTEXT
from penstock.errors import PenstockError
from penstock.files.durable import Disk
from penstock.model.io.tensor_block import TensorBlock, TensorBlocks
from penstock.train.checkpoint import Checkpoints
from penstock.train.checkpoint.copies import digest_of_tensor
from penstock.train.loop.whole_tensors import give_blocks, take_tensors
from train.checkpoint.cuts import Cut, blocks_of
from train.checkpoint.faults import empty_like, tensors

Split = list[list[int]]
"""Layers of each rank."""

Task = Callable[..., Any]


def layers(numbers: list[int], step: int) -> dict[str, Tensor]:
    """The tensors of some layers, as they are at a step."""
    return {
        name.replace("norm", f"layers.{number}"): tensor
        for number in numbers
        for name, tensor in tensors(100 * number + step).items()
    }


def work(rank: int, size: int, store: Path, tasks: Connection) -> None:
    """What a process of the crew does until it is told to stop."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    groups = {n: dist.new_group(list(range(n)), timeout) for n in range(1, size + 1)}
    while (given := tasks.recv()) is not None:
        task, members, arguments = given
        try:
            tasks.send(task(groups[members], rank, *arguments))
        except PenstockError as error:
            tasks.send(error)
    dist.destroy_process_group()


class Crew:
    """Some processes with a pipe to each."""

    def __init__(self, size: int, store: Path) -> None:
        self.size = size
        pipes = [CONTEXT.Pipe() for _ in range(size)]
        self.pipes = [ours for ours, _ in pipes]
        self.processes = [
            CONTEXT.Process(target=work, args=(rank, size, store, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()

    def do(self, task: Task, *arguments: Any, members: int = 0) -> list[Any]:
        """Let the first `members` processes do something; what each returns, or its error."""
        members = members or self.size
        for pipe in self.pipes[:members]:
            pipe.send((task, members, arguments))
        return [self._answer(pipe) for pipe in self.pipes[:members]]

    def _answer(self, pipe: Connection) -> Any:
        if not pipe.poll(60):
            raise TimeoutError("a process does not answer")
        try:
            return pipe.recv()
        except EOFError:
            return None  # it is dead

    def stop(self) -> None:
        for pipe, process in zip(self.pipes, self.processes):
            with suppress(OSError):  # it may be dead
                pipe.send(None)
            process.join(20)
            if process.is_alive():
                process.kill()


def save(group: Any, rank: int, folder: Path, split: Split, step: int) -> None:
    checkpoints = Checkpoints(folder, group=group)
    checkpoints.save(step, layers(split[rank], step), {"seed": 1})
    checkpoints.wait()


def save_in_own_group(group: Any, rank: int, folder: Path) -> None:
    """Nobody gives a group: all ranks there are save together."""
    checkpoints = Checkpoints(folder)
    checkpoints.save(1, layers([rank], 1), {})
    checkpoints.wait()


def save_other_value(group: Any, rank: int, folder: Path, name: str) -> None:
    """Two replicas of two ranks; the last rank's copy of a tensor differs by one bit."""
    values = layers([rank % 2], 1)
    if rank == 3:
        values[name].view(torch.uint8)[0] ^= 1
    checkpoints = Checkpoints(folder, group=group)
    checkpoints.save(1, values, {})
    checkpoints.wait()


def save_other_state(group: Any, rank: int, folder: Path) -> None:
    checkpoints = Checkpoints(folder, group=group)
    checkpoints.save(1, layers([rank], 1), {"samples": rank // 2})
    checkpoints.wait()


def save_on_full_disk(group: Any, rank: int, folder: Path, culprit: int) -> None:
    """The disk of one rank is full."""
    disk = FaultyDisk(at=10, fault=full) if rank == culprit else Disk()
    checkpoints = Checkpoints(folder, group=group, disk=disk)
    checkpoints.save(2, layers([rank], 2), {})
    checkpoints.wait()


def save_and_die(group: Any, rank: int, folder: Path, culprit: int, at: int) -> None:
    """One rank is killed in one of its file operations."""
    disk = FaultyDisk(at, die) if rank == culprit else Disk()
    checkpoints = Checkpoints(folder, group=group, disk=disk)
    checkpoints.save(2, layers([rank], 2), {})
    checkpoints.wait()


def die(disk: FaultyDisk, name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def load(group: Any, rank: int, folder: Path, split: Split) -> tuple[int, dict[str, str]]:
    """The step found, and the digest of every tensor loaded."""
    checkpoints = Checkpoints(folder, group=group)
    found = checkpoints.newest()
    assert found is not None
    values = empty_like(layers(split[rank], 0))
    checkpoints.load(found, values)
    return found.step, {name: digest_of_tensor(tensor) for name, tensor in values.items()}


def save_cut(group: Any, rank: int, folder: Path, cut: Cut) -> None:
    checkpoints = Checkpoints(folder, group=group)
    checkpoints.save(1, blocks_of(cut[rank]), {})
    checkpoints.wait()


def save_cut_with_another_bit(
    group: Any, rank: int, folder: Path, cut: Cut, culprit: int, name: str
) -> None:
    """One rank's first block of a tensor is not what it should be."""
    blocks = blocks_of(cut[rank])
    if rank == culprit:
        blocks[name][0].tensor.view(torch.uint8)[0] ^= 1
    checkpoints = Checkpoints(folder, group=group)
    checkpoints.save(1, blocks, {})
    checkpoints.wait()


def save_other_kind(group: Any, rank: int, folder: Path) -> None:
    """Two ranks with halves of a tensor whose type they do not agree on."""
    half = torch.zeros(2, dtype=(torch.float32, torch.float64)[rank])
    checkpoints = Checkpoints(folder, group=group)
    checkpoints.save(1, {"weights/a": [TensorBlock(half, (4,), (2 * rank,))]}, {})
    checkpoints.wait()


def load_cut(group: Any, rank: int, folder: Path, cut: Cut) -> dict[str, list[str]]:
    """The digests of all blocks loaded, by name."""
    checkpoints = Checkpoints(folder, group=group)
    found = checkpoints.newest()
    assert found is not None
    blocks = blocks_of(cut[rank])
    for block in (block for blocks in blocks.values() for block in blocks):
        block.tensor.zero_()
    checkpoints.load(found, blocks)
    return digests(blocks)


def digests(blocks: TensorBlocks) -> dict[str, list[str]]:
    return {
        name: [digest_of_tensor(block.tensor) for block in found] for name, found in blocks.items()
    }


def gather_cut(group: Any, rank: int, cut: Cut) -> dict[str, str]:
    """The digests of whole tensors, on the first rank."""
    if rank:
        give_blocks(blocks_of(cut[rank]), group)
        return {}
    taken = take_tensors(blocks_of(cut[rank]), group)
    return {name: digest_of_tensor(tensor) for name, tensor in taken}


def newest(group: Any, rank: int, folder: Path) -> tuple[int, tuple[str, ...]]:
    """The step found, and what was damaged; warnings are not of interest here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Checkpoints(folder, group=group).newest()
    assert found is not None
    return found.step, found.damaged


def newest_of_own(group: Any, rank: int, folder: Path) -> None:
    """The files that each rank checks are whole, but the manifests are not those of one folder."""
    with patch(
        "penstock.train.checkpoint.manifest.content_digest", lambda *_: f"that of rank {rank}"
    ):
        Checkpoints(folder, group=group).newest()


def save_forever(folder: Path, ready: Connection) -> None:
    """Save one step after another until somebody kills us; say which ones are safe."""
    torch.set_num_threads(1)
    checkpoints = Checkpoints(folder, keep=2)
    for step in range(1, 10_000):
        checkpoints.save(step, layers([0], step), {})
        checkpoints.wait()
        ready.send(step)
