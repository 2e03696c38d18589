"""What the verifier does beside its processes."""

from collections.abc import Iterator

import pytest
import torch

from penstock.schedules import build
from penstock.verify import verifier as module
from penstock.verify.cases import trials_of
from penstock.verify.oracle import Answer
from penstock.verify.verifier import Verifier

pytestmark = pytest.mark.torch


@pytest.fixture
def two_threads() -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(usual)


@pytest.mark.usefixtures("two_threads")
def test_the_oracle_is_asked_once_and_leaves_the_other_cores_to_the_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []

    def asked(*_: object) -> Answer:
        threads.append(torch.get_num_threads())
        return Answer(0.0, {})

    monkeypatch.setattr(module, "answer", asked)
    trials, _ = trials_of(build("gpipe", devices=2, microbatches=2), None)
    judge = Verifier()
    first, second = (judge._answer(trials[0]) for _ in range(2))
    assert first is second
    assert threads == [1]
    assert torch.get_num_threads() == 2
