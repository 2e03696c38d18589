"""What each kind of op does: one small file per kind, and the table that names them.

A handler gets its subject (the stage it works with, or what a device keeps of a stage), the slice
of a batch it works on, the list of values, and the places of its reads and writes in the order of
the meaning table. Where an op has to wait for other ranks while it works, its handler is a
generator (run/execute/driver.py).
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.run.execute.handlers.backward import backward
from penstock.run.execute.handlers.confirm import confirm
from penstock.run.execute.handlers.embed_shard import embed_shard
from penstock.run.execute.handlers.embedding_gradient import embedding_gradient
from penstock.run.execute.handlers.forward import forward
from penstock.run.execute.handlers.forward_light import forward_light
from penstock.run.execute.handlers.gather_weights import gather_weights
from penstock.run.execute.handlers.head_gradient import head_gradient
from penstock.run.execute.handlers.input_gradient import input_gradient
from penstock.run.execute.handlers.load import begin_load, load
from penstock.run.execute.handlers.logits_statistics import logits_statistics
from penstock.run.execute.handlers.offload import begin_offload, offload
from penstock.run.execute.handlers.recompute import recompute
from penstock.run.execute.handlers.reduce_gradient import reduce_gradient
from penstock.run.execute.handlers.take_norm import take_norm
from penstock.run.execute.handlers.update import update
from penstock.run.execute.handlers.update_early import update_early
from penstock.run.execute.handlers.weight_gradient import weight_gradient

Handler = Callable[..., Any]

HANDLERS: Mapping[str, Handler] = {
    "F": forward,
    "N": forward_light,
    "R": recompute,
    "B": backward,
    "I": input_gradient,
    "W": weight_gradient,
    "E": embed_shard,
    "D": embedding_gradient,
    "S": logits_statistics,
    "T": head_gradient,
    "O": offload,
    "L": load,
    "G": gather_weights,
    "Z": reduce_gradient,
    "V": take_norm,
    "U": update,
    "A": update_early,
    "C": confirm,
}
"""The handler of each kind of op."""

BEGINNINGS: Mapping[str, Handler] = {"O": begin_offload, "L": begin_load}
"""What the main thread does when it submits a call of a kind to a side stream, for kinds that take
memory there or give it back."""
