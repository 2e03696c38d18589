"""Variables that no run can follow are refused by name, before anything is listed or started."""

import pytest

from penstock.errors import ShapeError
from penstock.run.process.environment import RankPlace, read_place, refuse_environment

WHOLE = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MASTER_PORT", "99999999", "MASTER_PORT is 99999999, but must be from 1 to 65535"),
        ("MASTER_PORT", "0", "MASTER_PORT is 0, but must be from 1 to 65535"),
        ("WORLD_SIZE", "1" * 20, f"WORLD_SIZE is {'1' * 20}, but must be from 1 to 1048576"),
        ("WORLD_SIZE", "1" * 9000, "WORLD_SIZE is a number of 9000 digits, but must be"),
        ("WORLD_SIZE", "0", "WORLD_SIZE is 0, but must be from 1"),
        ("RANK", "9" * 30, "RANK is a number of 30 digits"),
        ("RANK", "\u0663", "RANK is '\u0663', but must be an integer"),
        ("LOCAL_WORLD_SIZE", "5", "LOCAL_WORLD_SIZE is 5, but must be from 1 to 4"),
        ("TORCHELASTIC_RESTART_COUNT", "9" * 30, "TORCHELASTIC_RESTART_COUNT is a number of"),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ShapeError, match=f"^{message}"):
        read_place(WHOLE | {name: value})


def test_a_secret_is_handed_on_and_not_shown() -> None:
    here = RankPlace(1, 2, port=7, secret="word")
    assert read_place(here.environment()).secret == "word"
    assert "word" not in repr(here)


def test_an_interface_that_is_not_there_is_refused_with_those_that_are() -> None:
    refuse_environment({})
    refuse_environment({"GLOO_SOCKET_IFNAME": "lo"})
    with pytest.raises(ShapeError, match=r"GLOO_SOCKET_IFNAME names 'nope0', but .*lo"):
        refuse_environment({"GLOO_SOCKET_IFNAME": "lo,nope0"})
