"""Two profiles side by side."""

from typing import Any

import pytest

from penstock.errors import ShapeError
from penstock.profiling.compare import compare_profiles, refuse_others
from profiling.made_up import profile


def _slower(by: float) -> dict[str, Any]:
    first = profile()
    step = first["step"] | {"seconds": by, "mean": by, "tokens_per_second": 256 / by}
    return profile(step=step)


def test_a_profile_is_equal_to_itself() -> None:
    assert all(found.ratio == 1 for found in compare_profiles(profile(), profile()))


def test_a_difference_is_told_from_noise() -> None:
    said = {by: next(compare_profiles(profile(), _slower(by))) for by in (1.01, 1.5)}
    assert [found.certain for found in said.values()] == [False, True]
    assert said[1.5].ratio == 1.5


def test_profiles_of_different_machines_are_refused() -> None:
    other = profile(made=profile()["made"] | {"torch": "3"})
    with pytest.raises(ShapeError, match="differ in torch: 2 and 3"):
        refuse_others(profile(), other)
