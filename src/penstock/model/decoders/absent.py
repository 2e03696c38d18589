"""What stands in a stage where the whole model has something that belongs to other stages.

A stage runs the model's own code, which makes masks and rotary positions as it always does. Layers
of other stages hand on what they are given. The one in front of the stage's own layers hands on
what the stage has received, and the one behind them keeps what leaves the stage.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Embedding, Module


class AbsentLayer(Module):
    """A layer of another stage; it gives as many things as the others do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        return self.given(hidden)

    def given(self, hidden: Tensor) -> Any:
        return (hidden, *(None,) * (self._width - 1)) if self._width else hidden


class EntryLayer(AbsentLayer):
    """The layer in front of a stage's own: it hands on what the stage has received."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.received: Tensor | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        assert self.received is not None  # set by the stage before it runs
        received, self.received = self.received, None
        return self.given(received)


class ExitLayer(AbsentLayer):
    """The layer behind a stage's own: it keeps what leaves the stage."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.left: Tensor | None = None

    def given(self, hidden: Tensor) -> Any:
        self.left = hidden
        return super().given(hidden)


class AbsentEmbedding(Module):
    """An embedding of the first stage: what it gives is added to something that nobody looks at."""

    def forward(self, words: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.zeros((*words.shape, 1), device=words.device)


class AbsentPart(Module):
    """A norm, a projection or a head of another stage."""

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return hidden


def absent_module(module: Module) -> Module:
    """What stands for a module around the layers."""
    return AbsentEmbedding() if isinstance(module, Embedding) else AbsentPart()
