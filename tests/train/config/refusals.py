"""What is said against a configuration."""

import pytest

from penstock.errors import PenstockError
from penstock.train.config.load import loads


def refusal(text: str, *overrides: str) -> str:
    """The words with which a configuration is refused."""
    with pytest.raises(PenstockError) as caught:
        loads(text, overrides)
    return str(caught.value)
