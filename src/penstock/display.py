"""How a value shows itself in a notebook, though what can draw it stands above it.

A notebook asks the value in the last line of a cell for `_repr_html_`. A schedule belongs to core/
and a timeline to sim/, and neither may know the pictures, which are made of them. So whoever puts
the package together says once, by name, which module draws; it is loaded when something is shown.
"""

from importlib import import_module
from typing import ClassVar


class Displayed:
    """A value that notebooks draw."""

    drawer: ClassVar[str] = ""
    """Name of the module whose function `html` draws a value, or returns None where its `repr` says
    enough; nothing where nobody draws."""

    def _repr_html_(self) -> str | None:
        if not self.drawer:
            return None
        drawn: str | None = import_module(self.drawer).html(self)
        return drawn
