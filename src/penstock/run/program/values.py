"""What handlers work on: a list of values, and tuples of places in it."""

from typing import Any

Values = list[Any]
Places = tuple[int, ...]
