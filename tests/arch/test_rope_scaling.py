from math import inf, nan

import pytest

from loops import each
from penstock.arch.rope_scaling import NUMBERS, RopeScaling
from penstock.errors import ShapeError

COMPLETE = {
    "linear": RopeScaling("linear", 2.0),
    "dynamic": RopeScaling("dynamic", 2.0),
    "llama3": RopeScaling("llama3", 8.0, 8192, low_factor=1.0, high_factor=4.0),
    "yarn": RopeScaling("yarn", 4.0, 4096, beta_fast=16.0, beta_slow=2.0, truncate=False),
    "longrope": RopeScaling(
        "longrope", 4.0, 4096, short_factors=(1.0, 2.0), long_factors=(3.0, 4.0)
    ),
}


def test_every_variant_can_be_stated() -> None:
    assert set(COMPLETE) == set(NUMBERS)


@each(
    ("kind", "numbers", "message"),
    [
        ("yearn", {}, "no rope scaling is called 'yearn'\nhint: did you mean 'yarn'"),
        ("linear", {"factor": 0}, "rope scaling linear: factor is 0"),
        ("linear", {"factor": nan}, "factor is nan"),
        ("linear", {"factor": inf}, "factor is inf"),
        ("linear", {"factor": True}, "factor is True"),
        ("linear", {"factor": "2"}, "factor is '2'"),
        ("linear", {"beta_fast": 16.0}, "rope scaling linear has no beta_fast, but it is 16.0"),
        ("linear", {"original_positions": 64}, "linear has no original_positions"),
        ("llama3", {}, "original_positions is 0"),
        ("longrope", {"original_positions": 8, "short_factors": 2.0}, "short_factors is 2.0"),
        ("longrope", {"original_positions": 8, "long_factors": (0.0,)}, "long_factors is 0"),
        ("llama3", {"original_positions": 64, "truncate": False}, "llama3 has no truncate"),
        (
            "llama3",
            {"original_positions": 64, "low_factor": 4.0},
            "low_factor 4.0 is not below high_factor 4.0",
        ),
        (
            "yarn",
            {"original_positions": 64, "beta_fast": 0.5},
            "beta_slow 1.0 is not below beta_fast 0.5",
        ),
        ("yarn", {"original_positions": 64, "attention_factor": -1.0}, "attention_factor is -1"),
        ("yarn", {"original_positions": 64, "truncate": None}, "truncate is None"),
    ],
)
def test_impossible_variants_are_refused(
    kind: str, numbers: dict[str, object], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        RopeScaling(kind, **{"factor": 2.0, **numbers})  # type: ignore[arg-type]


def test_only_yarn_scales_queries_and_keys() -> None:
    assert [scaling.scale for scaling in COMPLETE.values()][:3] == [1.0, 1.0, 1.0]
    assert COMPLETE["yarn"].scale == pytest.approx(1.1386294361)  # 0.1 ln 4 + 1
    assert RopeScaling("yarn", 4.0, 64, attention_factor=0.7).scale == 0.7
