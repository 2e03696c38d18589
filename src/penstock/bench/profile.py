"""The part of `penstock bench run` that says where the time of one stage goes."""

from json import dumps

from penstock.arch.config import ModelConfig
from penstock.bench.run import BenchSettings, Result, Say
from penstock.plan.slices import equal_flops_of_model

OPERATIONS_SHOWN = 16
"""Operations that are listed."""


def measure_profile(settings: BenchSettings, say: Say) -> Result:
    """One stage's share of the model at each length, whole and in slices."""
    from penstock.bench.measure.breakdown import breakdown
    from penstock.bench.measure.real import TrainingWork
    from penstock.run.launch.worker_pool import Crew

    model = ModelConfig(**settings["model"], element_bytes=4)
    rows = []
    sizes = [(tokens, slices) for tokens in settings["tokens"] for slices in settings["slices"]]
    with Crew(1) as crew:
        for tokens, slices in sizes:
            lengths = equal_flops_of_model(model, tokens, slices)
            work = TrainingWork(model, tokens, 1)
            found = crew.run(breakdown, work, lengths, settings["repeats"])[0]
            row = {"tokens": tokens, "slices": slices, **found._asdict()}
            row["operations"] = dict(list(found.operations.items())[:OPERATIONS_SHOWN])
            rows.append(row)
            say(dumps(row))
    return {"model": settings["model"], "rows": rows}
