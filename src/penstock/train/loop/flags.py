"""What a schedule refuses, in the words of a configuration.

Schedules know requests as the command line writes them: `-k 4`. Whoever wrote a configuration gave
no such flag and looks for it in vain, so a refusal names the keys.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import ShapeError

KEY_OF_FLAG = {
    "p": "pipeline.devices",
    "m": "batch.microbatches",
    "v": "pipeline.chunks",
    "k": "pipeline.slices",
    "o": "pipeline.options",
}
_FLAG = re.compile(r"(?<![\w-])-([pmvko])(?!\w)")


def in_keys(text: str) -> str:
    """A text with keys of the configuration in the place of flags.

    >>> in_keys("leave -k out, or lower -o admit=3")
    'leave pipeline.slices out, or lower pipeline.options admit=3'
    """
    return _FLAG.sub(lambda found: KEY_OF_FLAG[found[1]], text)


@contextmanager
def refusals_in_keys() -> Iterator[None]:
    """Refusals of a request inside name keys of the configuration."""
    try:
        yield
    except ShapeError as error:
        raise ShapeError(in_keys(error.message), hint=in_keys(error.hint)) from None
