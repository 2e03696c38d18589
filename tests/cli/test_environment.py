"""Variables that no run can follow are refused before a process starts, with exit code 2."""

from pathlib import Path

import pytest

from cli.conftest import Penstock

pytestmark = pytest.mark.torch

PLACE = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("verb", ["train", "verify"])
def test_no_process_is_started_for_an_interface_that_is_not_there(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nope0")
    config = tmp_path / "tiny.toml"
    config.write_text(f'[run]\ndirectory = "{tmp_path}/run"\n[pipeline]\nschedule = "1f1b"\n')
    words = {"train": f"train {config} -n 2", "verify": "verify gpipe -p 2 -m 2"}
    answer = penstock(words[verb])
    assert answer.code == 2
    assert "error: GLOO_SOCKET_IFNAME names 'nope0'" in answer.err
    assert "starting" not in answer.err


@pytest.mark.parametrize(("name", "value"), [("MASTER_PORT", "99999999"), ("WORLD_SIZE", "1" * 20)])
def test_a_rank_refuses_its_place_before_it_meets_anybody(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    for variable, given in (PLACE | {name: value}).items():
        monkeypatch.setenv(variable, given)
    config = tmp_path / "tiny.toml"
    config.write_text('[pipeline]\nschedule = "1f1b"\n')
    answer = penstock(f"train {config}")
    assert answer.code == 2
    assert answer.err.startswith(f"error: {name} is {value}, but must be")


def test_threads_beyond_any_machine_are_refused(penstock: Penstock, tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text('[pipeline]\nschedule = "1f1b"\n')
    answer = penstock(f"train {config} --set run.threads=999999 --show")
    assert answer.code == 2
    assert "run.threads" in answer.err
    assert "1024" in answer.err
