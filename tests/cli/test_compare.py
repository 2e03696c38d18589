import json
from pathlib import Path

from cli.conftest import Penstock

LINE = "compare 1f1b seq1f1b zb-h1 -p 4 -m 8 -k 4"


def test_rows_stand_as_given_with_the_best_marked_and_the_ratio_to_the_first(
    penstock: Penstock,
) -> None:
    answer = penstock(LINE)
    assert answer.code == 0
    table = answer.out.split("\n\n")[0].splitlines()
    assert table[0].split() == ["name", "ops", "makespan", "span", "bubble", "peak", "ratio"]
    assert [line.split() for line in table[2:]] == [
        ["1f1b", "64", "33", "33", "27.3%", "4", "1.000"],
        ["seq1f1b", "256", "26.25*", "26.25*", "8.6%*", "1.75*", "0.795"],
        ["zb-h1", "96", "27", "27", "11.1%", "4", "0.818"],
    ]


def test_all_stand_on_one_time_axis(penstock: Penstock) -> None:
    picture = penstock(LINE).out.split("\n\n", 1)[1]
    for name in ("1f1b", "seq1f1b", "zb-h1"):
        assert f"{name} " in picture
    assert "makespan 26.25" in picture


def test_flags_go_to_those_that_take_them_and_the_others_are_told(penstock: Penstock) -> None:
    answer = penstock("compare 1f1b seq1f1b interleaved kfkb -p 4 -m 8 -k 2 -v 2 -o group=4 --json")
    assert answer.code == 0
    assert [(row["chunks"], row["slices"]) for row in answer.data] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (1, 1),
    ]
    assert answer.err.splitlines() == [
        "note: 1f1b has 1 stage(s) per device: -v 2 ignored",
        "note: 1f1b does not cut sequences into slices: -k 2 ignored",
        "note: 1f1b has no option 'group': -o group=4 ignored",
        "note: seq1f1b has 1 stage(s) per device: -v 2 ignored",
        "note: seq1f1b has no option 'group': -o group=4 ignored",
        "note: interleaved does not cut sequences into slices: -k 2 ignored",
        "note: kfkb has 1 stage(s) per device: -v 2 ignored",
        "note: kfkb does not cut sequences into slices: -k 2 ignored",
    ]


def test_an_option_of_none_of_them_is_misuse(penstock: Penstock) -> None:
    answer = penstock("compare 1f1b seq1f1b -p 4 -m 8 -o group=2")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: none of the schedules has an option 'group'\nhint: ")


def test_json_has_the_fields_of_simulate_and_a_ratio(penstock: Penstock) -> None:
    first, second = penstock("compare 1f1b zb-h1 -p 4 -m 8 --json").data
    assert first == {**penstock("simulate 1f1b -p 4 -m 8 --json").data, "ratio": 1}
    assert second["ratio"] == 27 / 33


def test_a_file_may_stand_beside_names(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(penstock("show gpipe -p 4 -m 8 --text -").out)
    answer = penstock(f"compare 1f1b {path} -p 4 -m 8 --json")
    assert [row["makespan"] for row in answer.data] == [33, 33]


def test_pictures_go_to_files_of_their_own(penstock: Penstock, tmp_path: Path) -> None:
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    answer = penstock(f"compare 1f1b gpipe -p 2 -m 2 --svg {svg} --html {html} --json")
    assert answer.code == 0
    assert len(answer.data) == 2
    for path in (svg, html):
        assert "1f1b" in path.read_text()
        assert "gpipe" in path.read_text()


def test_other_times_than_planned_have_columns_of_their_own(penstock: Penstock) -> None:
    answer = penstock("compare gpipe zb-v -p 4 -m 8 --jitter 0.1 --draws 20 --straggler 1.5")
    head, _, gpipe, zb_v = answer.out.split("\n\n")[0].splitlines()
    assert head.split()[6:] == ["with", "jitter", "with", "straggler", "ratio"]
    assert gpipe.split()[7] == "45"  # (3 m 1.5 + 3 (p - 1)), and zb-v takes less
    assert float(gpipe.split()[6]) > 33
    assert zb_v.split()[7].endswith("*")


def test_other_times_than_planned_are_in_the_json(penstock: Penstock) -> None:
    line = "compare gpipe zb-v -p 4 -m 8 --jitter 0.1 --draws 20 --straggler 1.5 --json"
    for record in json.loads(penstock(line).out):
        assert record["jitter"]["draws"] == 20
        assert 1 < record["jitter"]["p50"] < record["jitter"]["p95"] <= record["jitter"]["p99"]
        assert len(record["straggler"]["ratios"]) == 4
