"""Files that are read because they lie in a folder: a pipe among them would be waited for forever.

What a user names on the command line may be a pipe (`<(command)`), and is opened as it is. What is
found in a folder under a known name is only read where it is a regular file.
"""

import os
import stat
from errno import EINVAL
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """A regular file for reading; anything else is an OSError, and is not waited for."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise OSError(EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path) -> bytes:
    """The whole content of a regular file."""
    with open_regular(path) as file:
        return file.read()
