"""The ranks agree on what they are about to do, before they do it.

Ranks that were started with different configurations or programs would exchange tensors of
different sizes, which ends a process without a word, or train nonsense quietly. So each rank states
the facts that must be equal. The statements are compared by hash; only where they differ are they
looked at, and both sides are named.
"""

import hashlib
import json
from collections.abc import Mapping
from itertools import zip_longest

from torch._C._distributed_c10d import Store

from penstock.errors import RunError
from penstock.run.process.rendezvous import Connection
from penstock.run.process.store import PATIENCE, absent

LONGEST = PATIENCE.total_seconds()
SHORT = 80
"""Characters up to which a fact is shown whole; of a longer one the first line that differs."""

Facts = Mapping[str, str]


def agree(
    connection: Connection, facts: Facts, *, topic: str = "facts", wait: float = LONGEST
) -> None:
    """Return once every rank has stated the same facts; otherwise refuse, on every rank.

    A run may agree several times, each time under a topic of its own.
    """
    if connection.alone:
        return
    store, ranks = connection.store, range(connection.world)
    store.set(_key(topic, connection.rank, "whole"), json.dumps(dict(facts)))
    store.set(_key(topic, connection.rank), _digest(facts))
    keys = [_key(topic, rank) for rank in ranks]
    if late := absent(store, keys, wait):
        raise RunError(
            f"ranks {', '.join(map(str, late))} have not reported their {topic} within {wait:g} s",
            hint="check their output: they may have failed before they connected",
        )
    digests = store.multi_get(keys)
    odd = next((rank for rank in ranks if digests[rank] != digests[0]), None)
    if odd is not None:
        raise _refusal(store, topic, odd)


def _key(topic: str, rank: int, part: str = "digest") -> str:
    return f"agree/{topic}/{rank}/{part}"


def _digest(facts: Facts) -> str:
    return hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode()).hexdigest()


def _refusal(store: Store, topic: str, odd: int) -> RunError:
    ours, theirs = (json.loads(store.get(_key(topic, rank, "whole"))) for rank in (0, odd))
    return RunError(
        "; ".join(differences(ours, theirs, odd)),
        hint="start every rank with the same configuration, files and versions",
    )


def differences(ours: Facts, theirs: Facts, odd: int) -> list[str]:
    """How the facts of a rank differ from those of rank 0.

    >>> differences({"dtype": "float32"}, {"dtype": "bfloat16"}, 3)
    ['dtype: rank 0 has float32, rank 3 has bfloat16']
    >>> differences({"config": "a = 1\\nb = 2" * 40}, {"config": "a = 1\\nb = 3" * 40}, 1)
    ['config: line 2: rank 0 has b = 2a = 1, rank 1 has b = 3a = 1']
    """
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        f"{name}: {_compared(ours.get(name), theirs.get(name), odd)}"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def _compared(ours: str | None, theirs: str | None, odd: int) -> str:
    if ours is None or theirs is None or max(len(ours), len(theirs)) <= SHORT:
        return f"rank 0 has {_shown(ours)}, rank {odd} has {_shown(theirs)}"
    pairs = zip_longest(ours.splitlines(), theirs.splitlines(), fillvalue=None)
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            return f"line {number}: rank 0 has {_shown(left)}, rank {odd} has {_shown(right)}"
    return f"rank 0 has {len(ours)} characters, rank {odd} has {len(theirs)}"


def _shown(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."
