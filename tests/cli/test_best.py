from pathlib import Path

import pytest

from cli.conftest import Penstock
from penstock.errors import ShapeError
from penstock.files import load
from penstock.sim import simulate
from penstock.train.config.load import loads
from penstock.train.loop.setup import layout_of

pytestmark = pytest.mark.processes  # records that search are asked in processes of their own

ROOT = Path(__file__).parents[2]
PAGE, README = ROOT / "docs/reference/best.md", ROOT / "README.md"
LINE = "best -p 4 -m 8 --layers 16*1,4@0 --limit 24 --seconds 1000"
SMALL = "best -p 2 -m 3 -v 2 --seconds 1000"


@pytest.mark.matrix
def test_the_winner_stands_first_with_its_distance_to_the_bound(penstock: Penstock) -> None:
    answer = penstock(LINE)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].split() == ["makespan", "above", "bound", "peak", "bytes", "schedule"]
    assert lines[2].split() == ["128", "4.9%", "24", "96", "searched"]
    assert "bound 122 (ramp): nothing is faster" in lines
    for page in (PAGE, README):
        shown = page.read_text().splitlines()
        assert {*lines[:4]} <= {*shown}, f"{page.name} shows another winner"


def test_json_has_all_of_them(penstock: Penstock) -> None:
    data = penstock(f"{SMALL} --times F=2,I=3,W=1 --limit 2 --boundary 10 --json").data
    assert (data["devices"], data["microbatches"], data["limit"]) == (2, 3, 2)
    rows = data["schedules"]
    assert [row["makespan"] for row in rows] == sorted(row["makespan"] for row in rows)
    assert "searched" in {row["name"] for row in rows}
    for row in rows:
        assert row["peak"] <= 2
        assert row["makespan"] >= data["bound"]
        assert row["bytes"] % 10 == 0
        assert len(row["layers"]) == len(row["placement"])
        assert sum(row["layers"]) == 24
    assert "gpipe" in data["passed_over"]


def test_the_winner_is_saved_and_simulates_to_the_same_time(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "winner.txt"
    layers = tmp_path / "layers.txt"
    layers.write_text("block x 6: F=1 I=2 W=1/2 act=2\nhead: F=3 I=3 W=3 act=0\n")
    answer = penstock(f"{SMALL} --layers {layers} --json --save {path}")
    winner = answer.data["schedules"][0]
    assert answer.err == f"wrote {path}\n"
    timeline = simulate(load(path))
    assert float(timeline.makespan) == winner["makespan"]
    assert float(max(timeline.peak)) == winner["peak"]
    assert penstock(f"check {path}").code == 0


@pytest.mark.torch
@pytest.mark.matrix
def test_the_winner_is_run_for_real_and_is_equal(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "winner.txt"
    line = "best -p 2 -m 3 -v 2 --layers 6*1,3@0 --limit 8 --seconds 0.5"
    winner = penstock(f"{line} --json --save {path}").data["schedules"][0]
    assert len(set(winner["layers"])) > 1
    answer = penstock(f"verify {path} --json")
    assert (answer.code, answer.data["equal"]) == (0, True)


def test_no_schedule_has_more_stages_per_device_than_it_may(penstock: Penstock) -> None:
    rows = penstock("best -p 2 -m 4 -v 1 --seconds 0.3 --json").data["schedules"]
    assert {len(row["placement"]) for row in rows} == {2}


def test_a_saved_winner_says_how_it_was_priced(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "winner.txt"
    prices = "--times F=2,I=2,W=1 --sizes act=3,stash=1 --hop 1/2"
    winner = penstock(f"{SMALL} {prices} --json --save {path}").data["schedules"][0]
    head = path.read_text().splitlines()[:2]
    assert head[1] == f"# simulated with {prices}"
    again = penstock(f"simulate {path} {prices} --json").data
    assert (again["makespan"], max(again["peak"])) == (winner["makespan"], winner["peak"])


def test_a_saved_winner_is_trained_with_its_cut(penstock: Penstock, tmp_path: Path) -> None:
    """The layers are those of the model and its head, which is no layer of the model."""
    path = tmp_path / "winner.txt"
    line = "best -p 2 -m 3 -v 1 --layers 6*1,3@0 --seconds 0.5"
    winner = penstock(f"{line} --json --save {path}").data["schedules"][0]
    *first, last = winner["layers"]
    cut = (*first, last - 1)
    assert len({*cut}) > 1
    wanted = ["model.preset=tiny", "model.layers=6", "batch.microbatches=3"]
    settings = loads(f'[pipeline]\nschedule = "{path}"\n', wanted)
    assert layout_of(settings, 2).layers == cut
    chosen = loads(f'[pipeline]\nschedule = "{path}"\nlayers = [3, 3]\n', wanted)
    assert layout_of(chosen, 2).layers == (3, 3)
    with pytest.raises(ShapeError, match="layers, 6 together, which does not fit a model of 4"):
        layout_of(loads(f'[pipeline]\nschedule = "{path}"\n', wanted[2:]), 2)


def test_a_place_that_cannot_be_written_to_is_refused_before_the_search(
    penstock: Penstock,
) -> None:
    answer = penstock("best -p 64 -m 512 --seconds 3600 --save /nonexistent/winner.txt")
    assert (answer.code, answer.out) == (2, "")
    assert "cannot write '/nonexistent/winner.txt'" in answer.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("best -p 0 -m 3", "-p is 0"),
        ("best -p 2 -m 0", "-m is 0"),
        ("best -p 2 -m 3 --times G=1", "schedules are not ranked by G"),
        ("best -p 2 -m 3 --sizes kv=1", "schedules are not ranked by kv"),
        ("best -p 2 -m 3 --layers none.txt", "neither a list of layers nor a file"),
        ("best -p 2 -m 3 --layers 1", "1 layer"),
        ("best -p 2 -m 3 --limit x", "not a number"),
        ("best -m 3", "-p"),
        ("best -p 2 -m 3 -k 0", "-k"),
        ("best -p 2 -m 3 --seconds nan", "--seconds is nan"),
    ],
)
def test_misuse_is_refused_in_words(line: str, words: str, penstock: Penstock) -> None:
    answer = penstock(line)
    assert answer.code == 2
    assert words in answer.err
    assert "hint: " in answer.err


def test_a_limit_that_nothing_keeps_is_bad_news(penstock: Penstock) -> None:
    answer = penstock("best -p 2 -m 3 --limit 1/2 --seconds 1000")
    assert answer.code == 1
    assert "no schedule of 3 microbatches stays within 1/2" in answer.err
