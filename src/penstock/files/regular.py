"""Files that are read because they lie in a folder: a pipe among them would be waited for forever.

What a user names on the command line may be a pipe (`<(command)`), and is opened as it is. What is
found in a folder under a known name is only read where it is a regular file, and not too large to
be what it should be.
"""

import os
import stat
from errno import EFBIG, EINVAL
from io import BufferedReader
from pathlib import Path

MOST_BYTES = 1 << 28
"""Files above this hold no description of anything; the index of a large model has megabytes."""


def open_regular(path: Path) -> BufferedReader:
    """A regular file for reading; anything else is an OSError, and is not waited for."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a name with a NUL or half a character
        raise OSError(EINVAL, str(error), str(path)) from None
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise OSError(EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The whole content of a regular file; one that is larger than `most` bytes is an OSError."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:  # a file with holes is large and costs nothing
            raise OSError(EFBIG, f"it is larger than {most:,} bytes", str(path))
        return file.read(most)
