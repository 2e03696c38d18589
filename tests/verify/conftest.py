"""A verifier whose trials run on the ranks that all tests share, unless they need a GPU."""

from collections.abc import Callable, Iterator

import pytest


@pytest.fixture(scope="session")
def verifier(crews: Callable[[int], "Crew"]) -> Iterator["Verifier"]:  # noqa: F821 - needs torch
    from penstock.run.launch.worker_pool import Crew
    from penstock.verify.variants import Trial
    from penstock.verify.verifier import Verifier

    class SharingVerifier(Verifier):
        def crew_for(self, trial: Trial) -> Crew:
            on_cpu = trial.scale.device == "cpu"
            return crews(trial.processes) if on_cpu else super().crew_for(trial)

    with SharingVerifier() as shared:
        yield shared
