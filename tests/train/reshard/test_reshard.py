"""A run goes on under any other layout, and its weights are exported from any."""

from pathlib import Path

import pytest
import torch

from loops import all_cases
from train.reshard.going_on import Crews, goes_on, weights_in
from train.reshard.jobs import Straight, exported, straight
from train.reshard.layouts import ALONE, MODELS, Change, Spread, chosen_changes

pytestmark = pytest.mark.torch

TOKENS_AND_MATRICES = ALONE._replace(tensor=2, sequence="ulysses", shard="optimizer")
RING_ON_TWO_DEVICES = ALONE._replace(
    family="seq1f1b", devices=2, slices=2, sequence="ring", tensor=1
)
SHARDED = ALONE._replace(replicas=2, devices=2, shard="optimizer")
FULLY = SHARDED._replace(family="interleaved", chunks=2, shard="full")
"""Layouts of four ranks."""
VOCABULARY = ALONE._replace(family="vocab-1f1b", devices=2, replicas=2, shard="optimizer")
VOCABULARY_SLICES = ALONE._replace(family="vocab-seq1f1b", devices=2, slices=2, tensor=2)
VOCABULARY_FULLY = VOCABULARY._replace(family="vocab-v-half", chunks=2, shard="full")
"""The same with the vocabulary on shards of unequal sizes."""
APART = ALONE._replace(family="helixpipe", devices=2, chunks=2, tensor=2)
"""Layers cut at their attention."""
FOUR_COPIES = ALONE._replace(tensor=2, sequence="ulysses", replicas=2)
OWNERS_OF_CELLS = FOUR_COPIES._replace(
    family="seq1f1b-i", chunks=2, slices=2, shard="optimizer", norms="replicated"
)
"""Layouts of eight ranks: tensor ranks with unequal shares, which still hold the same norms."""
HELD_TWICE = "a key/value head that two ranks hold"


class Reference:
    """What one process arrives at, worked out once for each model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Straight] = {}

    def of(self, change: Change) -> Straight:
        name = self.name(change)
        if name not in self._known:
            self._known[name] = straight(change.model, self.folder / name)
        return self._known[name]

    def name(self, change: Change) -> str:
        return f"alone-{[*MODELS].index(change.heads)}-{change.tied}"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("reference"))


@pytest.mark.matrix
def test_a_run_goes_on_under_other_layouts_of_four_ranks(
    crews: Crews, reference: Reference, tmp_path: Path
) -> None:
    changes = [
        Change(HELD_TWICE, True, TOKENS_AND_MATRICES, RING_ON_TWO_DEVICES),
        Change("uneven heads", False, SHARDED, TOKENS_AND_MATRICES),
        Change(HELD_TWICE, True, RING_ON_TWO_DEVICES, SHARDED),
        Change(HELD_TWICE, True, APART, SHARDED),
        Change("uneven heads", False, TOKENS_AND_MATRICES, APART),
        Change(HELD_TWICE, True, TOKENS_AND_MATRICES._replace(shard="full"), FULLY),
        Change("uneven heads", False, FULLY, RING_ON_TWO_DEVICES._replace(shard="full")),
    ]
    with all_cases() as case:
        for number, change in enumerate(changes):
            with case(change):
                goes_on(change, reference.of(change), crews, tmp_path / str(number))


@pytest.mark.matrix
def test_a_run_goes_on_with_the_vocabulary_on_shards_and_without(
    crews: Crews, reference: Reference, tmp_path: Path
) -> None:
    changes = [
        Change(HELD_TWICE, True, VOCABULARY, RING_ON_TWO_DEVICES),
        Change("uneven heads", False, SHARDED, VOCABULARY_SLICES),
        Change(HELD_TWICE, True, VOCABULARY_SLICES, VOCABULARY_FULLY),
        Change("uneven heads", False, VOCABULARY_FULLY, VOCABULARY),
    ]
    with all_cases() as case:
        for number, change in enumerate(changes):
            with case(change):
                goes_on(change, reference.of(change), crews, tmp_path / str(number))


@pytest.mark.matrix
def test_tensor_ranks_with_unequal_shares_hold_the_same_bits_and_store_each_element_once(
    crews: Crews, reference: Reference, tmp_path: Path
) -> None:
    changes = [
        Change(HELD_TWICE, True, FOUR_COPIES, OWNERS_OF_CELLS),
        Change("uneven heads", False, OWNERS_OF_CELLS, FOUR_COPIES),
        Change("uneven heads", True, FOUR_COPIES._replace(norms="replicated"), OWNERS_OF_CELLS),
    ]
    with all_cases() as case:
        for number, change in enumerate(changes):
            with case(change):
                goes_on(change, reference.of(change), crews, tmp_path / str(number))


@pytest.mark.parametrize(
    "spread",
    [TOKENS_AND_MATRICES, SHARDED, FULLY, VOCABULARY_SLICES, APART],
    ids=["cells", "owners", "ranges", "shards", "attention apart"],
)
def test_an_export_has_the_bytes_of_what_one_process_has_saved(
    crews: Crews, reference: Reference, tmp_path: Path, spread: Spread
) -> None:
    change = Change("uneven heads", True, ALONE, spread)
    right, kept = reference.of(change), reference.folder / reference.name(change)
    crews(4).run(exported, spread, change.model, kept, tmp_path / "cells")
    crews(1).run(exported, ALONE, change.model, kept, tmp_path / "one")
    found, whole = (weights_in(tmp_path / name, right.weights) for name in ("cells", "one"))
    assert all(torch.equal(found[name], tensor) for name, tensor in whole.items())
    assert not torch.equal(found["model.norm.weight"], right.weights["model.norm.weight"])


@pytest.mark.matrix
def test_every_two_values_of_layouts_meet_in_a_run_that_goes_on(
    crews: Crews, reference: Reference, tmp_path: Path
) -> None:
    changes = chosen_changes()
    assert len(changes) >= 40
    with all_cases() as case:
        for number, change in enumerate(changes):
            with case(change):
                goes_on(change, reference.of(change), crews, tmp_path / str(number))
