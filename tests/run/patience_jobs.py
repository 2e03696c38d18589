"""What the ranks of the tests' crew say of their patience."""

from datetime import timedelta

from penstock.run.comm.collective import make_group
from penstock.run.process.rendezvous import Connection
from run.jobs import CPU, mesh_of


def patiences(connection: Connection) -> set[timedelta]:
    """How long this rank waits for others, in each of its groups and at the store."""
    mesh = mesh_of(2, 2)
    checkpoints = make_group(backend="gloo")
    groups = (mesh.world, mesh.pipeline, mesh.copies, mesh.among((0, 1)), checkpoints)
    found = {group._get_backend(CPU).options._timeout for group in groups if group}
    return found | {connection.store.timeout}
