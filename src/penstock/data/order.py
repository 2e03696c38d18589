"""Random orders that are the same on every machine and under every release."""

import numpy as np

from penstock.data.corpus import Longs


def shuffle(count: int, *seeds: int) -> Longs:
    """The numbers below `count` in an order that depends on the seeds alone.

    Numbers are sorted by random keys, because NumPy promises that the raw stream of a generator
    never changes, and does not promise it for its shuffles.
    """
    keys = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    return np.argsort(keys, kind="stable")
