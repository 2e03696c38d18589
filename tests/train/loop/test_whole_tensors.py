"""Whole tensors on one rank, from the blocks that several hold."""

from collections.abc import Iterator

import pytest
import torch

from penstock.errors import RunError
from penstock.train.checkpoint.copies import digest_of_tensor
from penstock.train.loop.whole_tensors import take_tensors
from train.checkpoint import crew as tasks
from train.checkpoint.crew import Crew
from train.checkpoint.cuts import Cut, along, blocks_of, wholes

pytestmark = pytest.mark.torch

COLUMNS = along(1, [3, 8])
CUTS: dict[str, Cut] = {
    "whole, and copies": [*along(0, [6])] * 3,
    "rows": along(0, [1, 4, 6]),
    "columns, and copies of them": [*COLUMNS, *COLUMNS],
    "all on other ranks": [{}, *along(0, [6], shards=2)],
    "blocks, and one rank with everything": [*COLUMNS, *along(0, [6])],
    "everything, and blocks of it": [*along(0, [6]), *COLUMNS],
    "nothing of a tensor on some ranks": along(0, [6], shards=4),
    "runs of columns": along(1, [3, 8], shards=2),
}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    crew = Crew(4, tmp_path_factory.mktemp("crew") / "store")
    yield crew
    crew.stop()


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_the_first_rank_has_every_tensor_whole(crew: Crew, cut: Cut) -> None:
    first, *others = crew.do(tasks.gather_cut, cut, members=len(cut))
    assert first == {name: digest_of_tensor(tensor) for name, tensor in wholes().items()}
    assert not any(others)


def test_a_tensor_of_which_elements_are_nowhere_is_refused_on_all_ranks(crew: Crew) -> None:
    answers = crew.do(tasks.gather_cut, along(0, [1, 4]), members=2)
    assert all(isinstance(answer, RunError) for answer in answers)
    assert {str(answer).split(": ")[0] for answer in answers} == {
        "weights/matrix is [6, 8] of float64, but no rank holds its element [4, 0]"
    }


def test_one_process_alone_puts_its_own_blocks_together_and_copies_no_whole_tensor() -> None:
    pieces = along(0, [6], shards=2)
    blocks = {name: [region for own in pieces for region in own[name]] for name in wholes()}
    found = dict(take_tensors(blocks_of(blocks), None))
    assert all(torch.equal(found[name], tensor) for name, tensor in wholes().items())
    whole = blocks_of(along(0, [6])[0])
    for name, tensor in take_tensors(whole, None):
        assert tensor.data_ptr() == whole[name][0].tensor.data_ptr()
