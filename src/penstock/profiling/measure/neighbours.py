"""What a rank takes while its neighbours compute too.

The ranks of a host share its caches and the way to its memory, and a processor lowers its clock
when all of its cores are busy. So a rank that is alone is faster than any rank of a run. Here each
of some processes does the same job at the same time, without speaking to the others.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Concatenate, ParamSpec, TypeVar

from penstock.run.launch.worker_pool import Crew
from penstock.run.process.rendezvous import Connection

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Neighbours(ExitStack):
    """Crews of one rank each, as many as a machine has ranks."""

    def __init__(self, ranks: int, limit: float) -> None:
        super().__init__()
        self._crews = [self.enter_context(Crew(1, limit=limit)) for _ in range(ranks)]

    def run(
        self,
        job: Callable[Concatenate[Connection, Given], Result],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> list[Result]:
        """What each of them returns."""
        with ThreadPoolExecutor(len(self._crews)) as threads:
            try:
                return [*threads.map(lambda crew: crew.run(job, *args, **kwargs)[0], self._crews)]
            except BaseException:
                for crew in self._crews:  # leaving waits for threads, and these for their ranks
                    crew.kill()
                raise
