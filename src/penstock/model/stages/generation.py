"""Tokens of one sequence, one call after the other: what a trained model says, for checking.

A call is a slice: its tokens attend to all calls before it through the memory of the sequence.
Where a model leaves out tokens, each is kept that has a score above 0, so that a token is treated
the same whether it comes alone or among others, and layers inside of brackets remember only kept
tokens. It serves checks and small samples: one sequence, one rank, nothing is batched.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.piece import Piece
from penstock.model.stages.decoder import DecoderStage


class Generation:
    """A sequence on a stage that is a whole model."""

    def __init__(self, stage: DecoderStage, weights: Any, longest: int) -> None:
        """`weights` is what the stage's `views` made of a buffer; `longest` is how many tokens the
        sequence will have at most."""
        self.stage, self.weights, self.longest = stage, weights, longest
        self.tokens, self.calls = 0, 0
        self.memory: Any = None

    def feed(self, tokens: Sequence[int] | Tensor) -> Tensor:
        """Scores of every word behind each of the next tokens, [tokens, vocabulary]."""
        words = torch.as_tensor(tokens, device=self.stage.context.device).view(1, -1)
        end = self.tokens + words.shape[1]
        if end > self.longest:
            raise RunError(
                f"{end} tokens do not fit into a sequence of at most {self.longest}",
                hint="begin it with a larger number",
            )
        # More slices than there can be: none of them is the whole sequence.
        place = (0, self.calls, self.longest + 1, self.tokens, end, self.longest)
        piece = Piece(*place, words, words, ((0,),), 1.0)
        self.memory = self.stage.memory(piece, self.memory)
        scores = self.stage.logits(self.weights, piece, None, self.memory)[0]
        self.tokens, self.calls = end, self.calls + 1
        return scores

    def continued(self, prompt: Sequence[int] | Tensor, count: int) -> list[int]:
        """The likeliest next token, and the likeliest behind that, and so on."""
        found: list[int] = []
        scores = self.feed(prompt)
        for number in range(count):
            found.append(int(scores[-1].argmax()))
            if number < count - 1:
                scores = self.feed(found[-1:])
        return found

    def kept(self) -> dict[int, int]:
        """Tokens that the layers of each pair of brackets remember, by its number."""
        noted = getattr(self.memory, "kept", {})
        return {pair: sum(len(rows[0]) for rows in own.values()) for pair, own in noted.items()}
