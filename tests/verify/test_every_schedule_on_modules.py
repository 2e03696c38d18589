"""Every schedule that modules can run gives the gradients of one process, on a decoder without a
record; the others are refused before they start."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from loops import all_cases
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.run.launch.worker_pool import Crew
from penstock.run.program.plain_modules import module_homes
from penstock.schedules import registry
from penstock.verify.cases import CaseSizes, smallest
from penstock.verify.module_source import verify_modules

pytestmark = [
    pytest.mark.torch,
    pytest.mark.matrix,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

LAYERS = 4
CONFIG = {
    "model_type": "gpt_neox",
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "vocab_size": 29,
    "max_position_embeddings": 64,
}
SIZES = CaseSizes(devices=(2,), microbatches=(4, 8, 2), slices=(2, 4, 3))


def runnable() -> list[Schedule]:
    """Schedules of two devices whose work modules have, with a layer for every stage."""
    found = []
    for spec in registry().values():
        schedule = spec.build(smallest(spec, SIZES))
        try:
            module_homes(schedule, None)
        except ShapeError:
            continue
        if schedule.shape.stages <= LAYERS:
            found.append(schedule)
    return found


def test_every_schedule_equals_one_process(pair: Crew, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    schedules = runnable()
    assert len(schedules) > 35
    with all_cases() as case:
        for schedule in schedules:
            with case(schedule.name):
                verdict = pair.run(verify_modules, str(tmp_path), schedule)[0]
                assert verdict.equal, str(verdict)
