"""The server whose forks are ranks: it imports once what takes each of them a second.

There is one for all tests of a process, so its modules are named in one place. It finds those that
are installed, and none of the tests: these come with a fork.
"""

import multiprocessing

from penstock.schedules import modules

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "penstock.train.loop.rank",
        "penstock.train.checkpoint.write",
        "penstock.cli.train",
        "torch._dynamo",  # which the first optimizer imports: more than a second
        "torch.utils.serialization.config",
        "numpy.ma",
        *modules(),
    ]
)
