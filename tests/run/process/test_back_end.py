from concurrent.futures import ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import HashStore

from penstock.run.process import back_end
from penstock.run.process.back_end import GLOO, NCCL, agreed_back_end, own_back_end
from penstock.run.process.environment import RankPlace

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


@pytest.mark.parametrize(("devices", "expected"), [(4, NCCL), (2, NCCL), (1, GLOO), (0, GLOO)])
def test_a_machine_allows_nccl_where_each_of_its_ranks_has_a_device(
    devices: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_end.torch.cuda, "is_available", lambda: devices > 0)
    monkeypatch.setattr(back_end.torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(back_end.dist, "is_nccl_available", lambda: True)
    assert own_back_end(TWO_MACHINES[0]) == expected
