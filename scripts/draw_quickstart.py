"""The predicted and the measured timeline of a quickstart step, as the picture of a page.

`python scripts/draw_quickstart.py` measures and draws it anew, in about a minute. It is a
measurement of the machine it is made on, so nothing compares it with an earlier one. The fastest of
some steps is drawn: on a machine with fewer cores than processes single steps are held up by each
other.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from penstock.data import open_data
from penstock.draw.svg.picture import render
from penstock.run.launch.worker_pool import Crew
from penstock.run.observe.inspected_step import look_at_step
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import build_engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.train.config.load import load
from penstock.train.loop.rank import plan_of
from penstock.train.loop.setup import layout_of
from penstock.train.report.outcome import Compared
from penstock.train.report.report import compare_step
from penstock.train.report.wording import drawn

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "examples/quickstart.toml"
PICTURE = ROOT / "docs/pictures/quickstart.svg"
STEPS = 9


def fastest(connection: Connection, config: Path) -> Compared | None:
    """The fastest of some steps of a run, at its first rank."""
    settings = load(config, ["data.limit_bytes=1_000_000"])
    plan, batch = plan_of(settings, layout_of(settings, connection.world)), settings.batch
    engine = build_engine(plan, settings.mesh.replicas, AdamW(), torch.device("cpu"))
    begin(engine, settings.run.seed)
    with TemporaryDirectory() as folder:
        data = open_data(settings.data, batch.length, plan.layout.model.vocabulary, 0, Path(folder))
        microbatches = data.train.batch_at(0, 0, 1, batch.microbatches, batch.rows)
        looks = [look_at_step(engine, microbatches) for _ in range(STEPS)]
    engine.close()
    seen = min(filter(None, looks), key=lambda each: each.timeline.makespan, default=None)
    cores = len(os.sched_getaffinity(0))
    return compare_step(plan, seen, cores, engine.device) if seen else None


if __name__ == "__main__":
    from draw_quickstart import fastest as job  # by a name that the ranks can import too

    with Crew(load(CONFIG).pipeline.devices) as crew:
        found = crew.run(job, CONFIG)[0]
    assert found is not None
    PICTURE.write_text(render(drawn(found)))
