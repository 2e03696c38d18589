"""What a training step draws at random, where a model leaves out tokens.

A step draws whether weights are turned round, whether a balancer works and whether a bypass is kept
in its range. Each draw is a number of its own stream, by seed, step, microbatch and module, from a
generator that counts. So it is the same in every schedule, on every rank, and again when an op is
computed again.
"""

from enum import IntEnum
from typing import NamedTuple

from numpy.random import Generator, Philox


class Purpose(IntEnum):
    """What is drawn for."""

    FLIP = 0
    BALANCER = 1
    LIMITER = 2


class Moment(NamedTuple):
    """When something is drawn."""

    seed: int
    step: int
    """Updates before this step."""
    microbatch: int
    """Among those of all replicas."""

    def draw(self, module: int, purpose: Purpose) -> float:
        """A number from 0 to 1, the same whoever asks.

        >>> first = Moment(0, 3, 1).draw(0, Purpose.FLIP)
        >>> first == Moment(0, 3, 1).draw(0, Purpose.FLIP) != Moment(0, 4, 1).draw(0, Purpose.FLIP)
        True
        """
        counter = [self.microbatch, module, int(purpose), 0]
        return float(Generator(Philox(key=[self.seed, self.step], counter=counter)).random())
