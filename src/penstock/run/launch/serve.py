"""What a rank of a crew does: connect once, then one job after the other until the line closes."""

import os
import pickle
import sys
import traceback
from multiprocessing.connection import Connection as Line

import torch

from penstock.run.process.rendezvous import Connection, open_connection


def serve(descriptor: int) -> None:
    """Serve the jobs that come over an inherited file descriptor."""
    torch.set_num_threads(1)
    with Line(descriptor) as line:
        sys.path[:], back_end = line.recv()
        with open_connection(back_end) as connection:
            _work(line, connection)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # nothing is left to save, and taking torch down takes seconds


def _work(line: Line, connection: Connection) -> None:
    while True:
        try:
            work = line.recv_bytes()
        except EOFError:
            return
        line.send_bytes(_answer(work, connection))


def _answer(work: bytes, connection: Connection) -> bytes:
    """The result, or the traceback without the frame that belongs to this file."""
    try:
        job, args, kwargs = pickle.loads(work)
        return pickle.dumps((job(connection, *args, **kwargs), ""))
    except Exception as error:
        below = error.__traceback__.tb_next if error.__traceback__ else None
        return pickle.dumps(
            (None, "".join(traceback.format_exception(error.with_traceback(below))))
        )
