"""A record that cannot be read; who knows its file and line says where it is."""

from penstock.errors import ShapeError


class RecordError(ShapeError):
    """What is wrong with a record, as in `has no field 'text'`."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
