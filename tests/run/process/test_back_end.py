import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from penstock.run.process import back_end, rendezvous
from penstock.run.process import nccl_version as nccl_version_module
from penstock.run.process.back_end import (
    GLOO,
    NCCL,
    OWN_ORDER,
    SHARED_NCCL,
    SHARED_SETTINGS,
    agreed_back_end,
    own_back_end,
)
from penstock.run.process.environment import RankPlace
from penstock.run.process.nccl_version import nccl_version
from penstock.run.process.rendezvous import Connection, set_up_groups
from penstock.run.step.build import torch_device

pytestmark = pytest.mark.torch

TWO_MACHINES = [RankPlace(rank, 4, rank % 2, 2) for rank in range(4)]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [([2, 2], NCCL), ([2, 1], GLOO), ([0, 2], GLOO), ([0, 0], GLOO)],
    ids=["enough", "one too few", "none on the first machine", "none"],
)
def test_all_ranks_take_the_back_end_that_every_machine_allows(
    devices: list[int],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def own(here: RankPlace) -> str:
        return NCCL if devices[here.rank // 2] >= here.local_world else GLOO

    monkeypatch.setattr(back_end, "own_back_end", own)
    store = HashStore()
    with ThreadPoolExecutor(4) as ranks:
        chosen = list(ranks.map(lambda here: agreed_back_end(store, here), TWO_MACHINES))
    assert chosen == [expected] * 4
    said = capsys.readouterr().err
    lacking = [rank for rank in range(4) if devices[rank // 2] < 2]
    assert said.partition(":")[0] == ("warning" if len(lacking) == 2 else "")
    assert (f"the first of them rank {lacking[0]}:" in said) if len(lacking) == 2 else not said


def _with_devices(count: int, version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(back_end.torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(back_end.torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(back_end.dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(back_end, "nccl_version", lambda: version)
    for name in (*SHARED_SETTINGS, OWN_ORDER):
        monkeypatch.setenv(name, "")  # so that what is set here is taken back
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("devices", "version", "expected"),
    [
        (4, (2, 20), NCCL),
        (2, (2, 20), NCCL),
        (1, (2, 29), GLOO),
        (1, (2, 30), SHARED_NCCL),
        (1, (3, 0), SHARED_NCCL),
        (0, (2, 30), GLOO),
    ],
)
def test_a_machine_allows_nccl_where_its_ranks_have_a_device_each_or_may_share_one(
    devices: int, version: tuple[int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_devices(devices, version, monkeypatch)
    assert own_back_end(TWO_MACHINES[0]) == expected


def test_a_user_may_refuse_that_ranks_share_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_devices(1, (2, 31), monkeypatch)
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0")
    assert own_back_end(TWO_MACHINES[0]) == GLOO


def test_where_ranks_of_some_machine_share_nccl_is_told_on_all_and_rank_0_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks of one communicator with different settings would not find the same way."""
    _with_devices(1, (2, 31), monkeypatch)
    monkeypatch.setenv("NCCL_MAX_CTAS", "2")
    store = HashStore()
    for rank in (1, 2, 3):
        store.set(f"back-end/{rank}", SHARED_NCCL if rank == 3 else NCCL)
    monkeypatch.setattr(back_end, "own_back_end", lambda here: NCCL)
    assert agreed_back_end(store, TWO_MACHINES[0]) == NCCL
    assert capsys.readouterr().err == (
        "ranks share a GPU, good for checking and not for speed: NCCL gets "
        "NCCL_MULTI_RANK_GPU_ENABLE=1, NCCL_NVLS_ENABLE=0, NCCL_MAX_CTAS=2\n"
    )
    assert agreed_back_end(store, TWO_MACHINES[2]) == NCCL
    assert capsys.readouterr().err == ""
    assert [os.environ[name] for name in SHARED_SETTINGS] == ["1", "0", "2"]


@pytest.mark.parametrize("world", [1, 4])
def test_groups_are_bound_to_the_device_that_the_rank_computes_on(
    world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that is alone makes no communicator, and none is bound."""
    _with_devices(2, (2, 31), monkeypatch)
    current, given = list[torch.device](), dict[str, Any]()
    monkeypatch.setattr(back_end.torch.cuda, "set_device", current.append)
    place = RankPlace(3, world, 3, 4) if world > 1 else RankPlace()
    monkeypatch.setattr(
        rendezvous.dist, "init_process_group", lambda *_, **known: given.update(known)
    )
    set_up_groups(Connection(place, HashStore()), NCCL)
    assert current == [torch_device("cuda", place)]
    assert given["device_id"] == (torch.device("cuda", 1) if world > 1 else None)


def test_the_version_is_that_of_the_library_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(name: str, mode: int) -> Any:
        assert (name, mode & os.RTLD_NOLOAD) == ("libnccl.so.2", os.RTLD_NOLOAD)
        return SimpleNamespace(ncclGetVersion=answered)

    def answered(code: Any) -> None:
        code._obj.value = 23102

    monkeypatch.setattr(nccl_version_module.ctypes, "CDLL", loaded)
    assert nccl_version() == (2, 31)


def test_without_nccl_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, mode: int) -> None:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(nccl_version_module.ctypes, "CDLL", absent)
    monkeypatch.delattr(torch._C, "_nccl_version", raising=False)
    assert nccl_version() == (0, 0)
