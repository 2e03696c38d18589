"""A rank is put together for the devices that there are."""

import pytest
import torch

from penstock.errors import RunError
from penstock.run.comm.transport import Alone
from penstock.run.launch.worker_pool import Crew
from penstock.run.process.environment import RankPlace
from penstock.run.step.build import build_engine, torch_device
from penstock.run.step.optimizer import AdamW
from penstock.schedules import build
from run.jobs import CPU, built
from run.plans import plan_of

pytestmark = pytest.mark.torch


def _without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def _with_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_without_a_gpu_a_rank_takes_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_gpus(monkeypatch)
    assert torch_device("auto", RankPlace()) == torch_device("cpu", RankPlace()) == CPU


def test_a_gpu_that_is_wanted_and_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_gpus(monkeypatch)
    with pytest.raises(RunError, match="this machine has no CUDA device"):
        torch_device("cuda", RankPlace())


def test_ranks_of_a_machine_share_its_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_two_gpus(monkeypatch)
    places = [RankPlace(rank, 4, rank, 4) for rank in range(4)]
    assert [torch_device("auto", place).index for place in places] == [0, 1, 0, 1]
    assert torch_device("cpu", places[1]) == CPU


def test_one_process_talks_to_nobody() -> None:
    plan = plan_of(build("1f1b", devices=1, microbatches=2))
    engine = build_engine(plan, 1, AdamW(), CPU)
    assert isinstance(engine.transport, Alone)
    assert engine.mesh.pipeline is None


def test_processes_talk_through_gloo_on_the_host(ranks: Crew) -> None:
    found = ranks.run(built, plan_of(build("1f1b", devices=4, microbatches=4)), 1)
    assert {(kind, device) for kind, device, _ in found} == {("Gloo", "cpu")}
    assert len({loss for _, _, loss in found}) == 1
