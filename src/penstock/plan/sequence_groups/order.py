"""In which order a pipeline runs microbatches that take unequal times.

The first microbatch fills the pipeline and the last one drains it, and all devices but one wait
meanwhile. So the short ones stand at both ends, and times rise and fall between them.

    times 5 1 4 2 3   ->   1 3 5 4 2
"""

from collections.abc import Sequence


def rising_and_falling(times: Sequence[float]) -> list[int]:
    """Numbers of microbatches in the order in which they are run.

    >>> rising_and_falling([5, 1, 4, 2, 3])
    [1, 4, 0, 2, 3]
    """
    order = sorted(range(len(times)), key=lambda number: (times[number], number))
    return [*order[::2], *order[1::2][::-1]]
