"""Several processes that each hold blocks of tensors, cut one way when they save and another when
they load."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Size

from penstock.errors import RunError
from penstock.model.io.tensor_block import Region, whole_block
from penstock.train.checkpoint.copies import digest_of_tensor
from penstock.train.checkpoint.folders import checkpoint_path
from train.checkpoint import crew as tasks
from train.checkpoint.crew import Crew
from train.checkpoint.cuts import Cut, along, blocks_of, wholes

pytestmark = pytest.mark.torch

ROWS = along(0, [1, 4, 6])
COLUMNS = along(1, [3, 8])
CUTS: dict[str, Cut] = {
    "whole": along(0, [6]),
    "rows": ROWS,
    "columns": COLUMNS,
    "columns, and copies of them": [*COLUMNS, *COLUMNS],
    "runs of elements": along(0, [6], shards=4),
    "runs of rows": along(0, [1, 6], shards=2),
    "runs of columns": along(1, [3, 8], shards=2),
}
MATRIX, NORM = "weights/matrix", "weights/norm"


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    crew = Crew(4, tmp_path_factory.mktemp("crew") / "store")
    yield crew
    crew.stop()


def saved(crew: Crew, folder: Path, cut: Cut) -> Path:
    assert crew.do(tasks.save_cut, folder, cut, members=len(cut)) == [None] * len(cut)
    return checkpoint_path(folder, 1)


def the_error(outcome: list[object]) -> str:
    """What all ranks say."""
    assert all(isinstance(error, RunError) for error in outcome), outcome
    (error,) = {str(error) for error in outcome}
    return error


def moved(cut: Cut, rank: int, name: str, *regions: Region) -> Cut:
    """A cut in which one rank has other blocks of a tensor."""
    return [{**own, name: [*regions]} if at == rank else own for at, own in enumerate(cut)]


@pytest.mark.parametrize("writers", CUTS.values(), ids=CUTS)
def test_what_was_saved_by_one_cut_is_loaded_by_any_other_bit_for_bit(
    crew: Crew, tmp_path: Path, writers: Cut
) -> None:
    saved(crew, tmp_path, writers)
    for readers in CUTS.values():
        answers = crew.do(tasks.load_cut, tmp_path, readers, members=len(readers))
        assert answers == [tasks.digests(blocks_of(own)) for own in readers]


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_torch_reads_whole_tensors_from_any_blocks(crew: Crew, tmp_path: Path, cut: Cut) -> None:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(saved(crew, tmp_path / "run", cut), tmp_path / "whole.pt")
    found = torch.load(tmp_path / "whole.pt")
    assert found.keys() == wholes().keys()
    for name, tensor in wholes().items():
        assert digest_of_tensor(found[name]) == digest_of_tensor(tensor), name


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_whole_tensors_that_torch_wrote_by_its_own_plans_are_read_in_any_blocks(
    tmp_path: Path, cut: Cut
) -> None:
    """As checkpoints of earlier versions were written."""
    from torch.distributed.checkpoint import FileSystemWriter, save

    from penstock.train.checkpoint.storage import read_tensors

    save(wholes(), storage_writer=FileSystemWriter(tmp_path), no_dist=True)
    for own in cut:
        blocks = blocks_of(own)
        for block in (block for found in blocks.values() for block in found):
            block.tensor.zero_()
        read_tensors(tmp_path, blocks)
        assert tasks.digests(blocks) == tasks.digests(blocks_of(own))


def test_copies_are_written_once_by_the_lowest_rank_that_has_them(
    crew: Crew, tmp_path: Path
) -> None:
    folder = saved(crew, tmp_path, CUTS["columns, and copies of them"])
    assert {path.name for path in folder.glob("*.distcp")} == {"__0_0.distcp", "__1_0.distcp"}


@pytest.mark.parametrize(
    ("name", "culprit", "words"),
    [
        (NORM, 1, f"{NORM} differs between rank 0 and rank 1, which should be copies"),
        (MATRIX, 3, f"{MATRIX}[0:6, 3:8] differs between rank 1 and rank 3, which should"),
    ],
)
def test_a_copy_that_differs_in_one_bit_is_refused_with_its_place_and_both_ranks(
    crew: Crew, tmp_path: Path, name: str, culprit: int, words: str
) -> None:
    cut = CUTS["columns, and copies of them"]
    outcome = crew.do(tasks.save_cut_with_another_bit, tmp_path, cut, culprit, name)
    assert words in the_error(outcome)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (
            COLUMNS[:1],
            f"{MATRIX} is [6, 8] of float64, but no rank saves its element [0, 3]: 18 of 48",
        ),
        (
            moved(ROWS, 1, MATRIX, Region((1, 0), (2, 8))),
            f"{MATRIX} is [6, 8] of float64, but no rank saves its element [3, 0]: 40 of 48",
        ),
        (
            moved(ROWS, 2, MATRIX, Region((3, 0), (3, 8))),
            f"{MATRIX}[1:4, 0:8] of rank 1 and {MATRIX}[3:6, 0:8] of rank 2 overlap",
        ),
        (
            moved(ROWS, 0, MATRIX, Region((0, 0), (6, 8))),
            f"{MATRIX}[0:6, 0:8] of rank 0 and {MATRIX}[1:4, 0:8] of rank 1 overlap",
        ),
        (
            moved(COLUMNS, 1, NORM, *[Region((0,), (7,))] * 2),
            f"{NORM} is saved twice by rank 1",
        ),
    ],
    ids=["half", "gap", "overlap", "whole and part", "twice"],
)
def test_blocks_that_are_not_the_tensor_are_refused_and_nothing_is_written(
    crew: Crew, tmp_path: Path, cut: Cut, words: str
) -> None:
    outcome = crew.do(tasks.save_cut, tmp_path, cut, members=len(cut))
    assert words in the_error(outcome)
    assert list(tmp_path.iterdir()) == []


def test_blocks_of_one_name_and_two_tensors_are_refused(crew: Crew, tmp_path: Path) -> None:
    outcome = the_error(crew.do(tasks.save_other_kind, tmp_path, members=2))
    assert "weights/a is [4] of float32 on rank 0, but [4] of float64 on rank 1" in outcome
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_that_is_asked_for_in_part_is_refused_with_what_is_missing(
    crew: Crew, tmp_path: Path
) -> None:
    saved(crew, tmp_path, ROWS)
    cut = moved(COLUMNS, 1, MATRIX, Region((0, 3), (6, 4)))
    outcome = the_error(crew.do(tasks.load_cut, tmp_path, cut, members=2))
    assert f"{MATRIX} is [6, 8] of float64, but no rank asks for its element [0, 7]" in outcome


def test_a_description_with_a_gap_is_refused_and_fills_nothing() -> None:
    """As another tool may have written it."""
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        TensorProperties,
        TensorStorageMetadata,
    )

    from penstock.train.checkpoint.planners import BlockLoadPlanner

    chunks = [ChunkStorageMetadata(Size([at]), Size([2])) for at in (0, 4)]
    entry = TensorStorageMetadata(TensorProperties(torch.float32), Size([6]), chunks)
    planner = BlockLoadPlanner({"weights/a": [whole_block(torch.zeros(6))]})
    with pytest.raises(RunError, match=r"does not have element \[2\] of weights/a"):
        planner.plan(Metadata({"weights/a": entry}))


def test_ranks_may_ask_for_blocks_that_overlap(crew: Crew, tmp_path: Path) -> None:
    """An embedding and the head tied to it, which lie in buffers that are cut differently."""
    saved(crew, tmp_path, ROWS)
    cut = moved(CUTS["whole"], 0, MATRIX, Region((0, 0), (4, 8)), Region((2, 0), (4, 8)))
    answers = crew.do(tasks.load_cut, tmp_path, cut, members=1)
    assert answers == [tasks.digests(blocks_of(cut[0]))]
