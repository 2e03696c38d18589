"""Decoders without a record train over a pipeline as they do in one process of transformers."""

from importlib.util import find_spec

import pytest
import torch

import penstock
from loops import one_of
from penstock.run.launch.worker_pool import Crew
from penstock.transform import recompute_all
from run import decoder_jobs as jobs

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

SCHEDULES = {
    "1f1b": penstock.build("1f1b", devices=2, microbatches=4),
    "interleaved": penstock.build("interleaved", devices=2, microbatches=4, chunks=2),
    "zb-v": penstock.build("zb-v", devices=2, microbatches=4),
    "recomputed": recompute_all(penstock.build("zb-h1", devices=2, microbatches=4)),
    "seq1f1b": penstock.build("seq1f1b", devices=2, microbatches=4, slices=3),
    "seq1f1b-zb": penstock.build("seq1f1b-zb", devices=2, microbatches=4, slices=2),
    "sliced, recomputed": recompute_all(
        penstock.build("seq1f1b", devices=2, microbatches=4, slices=2)
    ),
}
WHOLE = ("falcon", "bloom", "starcoder2")
"""Those that cannot be cut into slices."""

ROUNDED = {"cohere": 1e4}
"""Norms in 32 bits, whatever the model has: where the last bits of inputs differ, because sums
are in another order, much more of their outputs does."""

CASES = [
    (kind, name)
    for kind in jobs.DECODERS
    for name, schedule in SCHEDULES.items()
    if max(schedule.shape.slices) == 1 or kind not in WHOLE
]


@pytest.mark.parametrize(("kind", "name"), one_of(9, CASES, every=2))
def test_ten_steps_equal_those_of_transformers(pair: Crew, kind: str, name: str) -> None:
    losses, gradients, weights = jobs.one_process(kind, 10)
    parts = pair.run(jobs.train, kind, SCHEDULES[name], 10)
    more = ROUNDED.get(kind, 1.0)
    for found, first, last in parts:
        assert found == pytest.approx(losses, rel=1e-10 * more)
        for key, value in first:
            near = {"rtol": 1e-10 * more, "atol": 1e-13 * more}
            if kind in ROUNDED:  # a sum in 32 bits is as exact as its largest terms are
                near["atol"] = 2.0**-21 * float(gradients[key].abs().max())
            torch.testing.assert_close(value, gradients[key], **near, msg=key)
        for key, value in last:
            near = {"rtol": 1e-8 * more, "atol": 1e-10 * more}
            torch.testing.assert_close(value, weights[key].detach(), **near, msg=key)
    assert {key for part in parts for key, _ in part[2]} == weights.keys()


@pytest.mark.parametrize("name", ["1f1b", "seq1f1b"])
def test_documents_are_marked_by_positions(pair: Crew, name: str) -> None:
    expected = float(
        jobs.theirs(jobs.decoder("stablelm"), 0, position_ids=jobs.documents()).detach()
    )
    for found in pair.run(jobs.with_documents, "stablelm", SCHEDULES[name]):
        assert found == pytest.approx(expected, rel=1e-10)
