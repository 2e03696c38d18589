"""A GPU without memory is an error with its numbers, and a hint."""

import pytest
import torch

from penstock.errors import RunError
from penstock.train.loop.out_of_memory import lack_of_memory_in_words

pytestmark = pytest.mark.torch

SAID = "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 139.80 GiB"


def test_what_was_asked_for_is_said() -> None:
    with pytest.raises(RunError) as caught, lack_of_memory_in_words(torch.device("cpu")):
        raise torch.OutOfMemoryError(SAID)
    assert caught.value.message == "cpu has no memory left: a tensor of 4.00 GiB was asked for"
    assert "pipeline.recompute" in (caught.value.hint or "")


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), lack_of_memory_in_words(torch.device("cpu")):
        raise ZeroDivisionError
