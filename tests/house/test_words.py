"""One word per thing, schedules known by name only at home, and nothing left unfinished."""

from collections.abc import Callable
from pathlib import Path

import pytest

from house import figures, words
from house.conftest import Plant
from house.registry import owners
from house.source import none_of

OWNERS = {"zb-x": "schedules/zb_x.py"}
OPS = "src/penstock/core/ops.py"


def test_no_schedule_is_known_by_name_outside_its_file(house: Path) -> None:
    none_of(words.stray_names(house, owners()))


@pytest.mark.parametrize(
    "rule", [words.other_words, words.unfinished, words.elsewhere, words.not_ascii, words.stubs]
)
def test_the_house_speaks_its_own_language(house: Path, rule: Callable[[Path], list[str]]) -> None:
    none_of(rule(house))


@pytest.mark.parametrize(
    "code",
    [
        "if name == 'zb-x': pass",
        "message = 'try zb-x instead'",
        "from penstock.schedules.zb_x import zb_x",
        "from penstock.schedules import zb_x",
        "zb_x = 1",
        "def zb_x(): return 1",
        "modes = dict(zb_x=1)",
    ],
)
def test_a_schedule_named_in_code_is_found(plant: Plant, code: str) -> None:
    root = plant({OPS: f"\n{code}\n"})
    complaint = words.stray_names(root, OWNERS)[0]
    assert complaint == (
        "src/penstock/core/ops.py:2: names the schedule 'zb-x', "
        "which only schedules/zb_x.py and the registry list may do"
    )


def test_a_schedule_named_in_a_script_is_found(plant: Plant) -> None:
    root = plant({"src/penstock/draw/page.js": "const title = 'zb-x';\n"})
    assert len(words.stray_names(root, OWNERS)) == 1


@pytest.mark.parametrize(
    "path", ["src/penstock/schedules/zb_x.py", "src/penstock/schedules/__init__.py"]
)
def test_a_schedule_may_be_named_at_home(plant: Plant, path: str) -> None:
    assert words.stray_names(plant({path: "name = 'zb-x'\n"}), OWNERS) == []


@pytest.mark.parametrize(
    "code", ['"""As in zb-x."""', "name = 'zb-x-long'", "azb_x = 1", "name = 'my-zb-x'"]
)
def test_a_docstring_or_a_longer_name_is_another_matter(plant: Plant, code: str) -> None:
    assert words.stray_names(plant({OPS: code}), OWNERS) == []


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def f(rank): return rank", "rank says 'rank', here it is device"),
        ("class WorkerPool: x = 1", "WorkerPool says 'worker', here it is device"),
        ("first_segment = 0", "first_segment says 'segment', here it is slice"),
        ("virtual_stage_of = {}", "virtual_stage_of says 'virtual_stage', here it is stage"),
        ("num_devices = 4", "num_devices says 'num', here it is the plain plural, as in devices"),
    ],
)
def test_a_word_of_the_field_is_refused(plant: Plant, code: str, complaint: str) -> None:
    assert words.other_words(plant({OPS: code})) == [f"src/penstock/core/ops.py:1: {complaint}"]


def test_an_attribute_of_our_own_is_a_word_too(plant: Plant) -> None:
    root = plant({OPS: "class A:\n    def f(self):\n        self.rank = 1\n"})
    assert len(words.other_words(root)) == 1


def test_chunks_is_a_count_and_chunk_is_refused(plant: Plant) -> None:
    root = plant({OPS: "chunks = 2\nchunk_id = 1\nnumber = ranking = 0\nmock.rank = f(rank=1)\n"})
    assert [complaint.split()[1] for complaint in words.other_words(root)] == ["chunk_id"]


def test_a_file_name_is_a_word_too(plant: Plant) -> None:
    assert len(words.other_words(plant({"src/penstock/core/rank.py": ""}))) == 1


def test_only_the_code_that_talks_to_torch_says_rank(plant: Plant) -> None:
    code = "rank = 0\n"
    root = plant({"src/penstock/run/comm/mesh.py": code, "src/penstock/files/torch_csv.py": code})
    assert words.other_words(root) == []


@pytest.mark.parametrize(
    "line",
    ["# TODO: check", "# works for now", "# filled in later", "raise NotImplementedError"],
)
@pytest.mark.parametrize("path", [OPS, "tests/core/test_ops.py", "docs/index.md"])
def test_a_promise_is_refused(plant: Plant, path: str, line: str) -> None:
    (complaint,) = words.unfinished(plant({path: f"\n{line}\n"}))
    assert complaint.startswith(f"{path}:2: ")
    assert complaint.endswith("is a promise; do it or leave it out")


def test_later_in_a_lane_is_a_place_and_not_a_promise(plant: Plant) -> None:
    assert words.unfinished(plant({OPS: "# which comes later in the same lane's order\n"})) == []


@pytest.mark.parametrize(
    "line", ["open('/tmp/x')", "see /home/me/notes", "see design.md", "as in design section 4"]
)
@pytest.mark.parametrize("path", [OPS, "README.md", "Makefile"])
def test_a_pointer_out_of_the_repository_is_refused(plant: Plant, path: str, line: str) -> None:
    (complaint,) = words.elsewhere(plant({path: line}))
    assert complaint.startswith(f"{path}:1: ")
    assert complaint.endswith("is not in the repository")


def test_relative_paths_and_fractions_are_fine(plant: Plant) -> None:
    root = plant({OPS: "# docs/work/x.md, bubble/work, a/root, tmp_path / 'x'\n"})
    assert words.elsewhere(root) == []


def test_a_character_outside_ascii_is_refused_and_its_escape_is_not(plant: Plant) -> None:
    root = plant({OPS: "a = '\\u2588'\nb = '\u2588'\n"})
    assert words.not_ascii(root) == ["src/penstock/core/ops.py:2: \"b = '\\u2588'\""]


@pytest.mark.parametrize("body", ["pass", "...", '"""Says much."""'])
def test_a_function_that_does_nothing_is_refused(plant: Plant, body: str) -> None:
    assert words.stubs(plant({OPS: f"def f():\n    {body}\n"})) == [
        "src/penstock/core/ops.py:1: f does nothing"
    ]


def test_a_protocol_describes_without_doing(plant: Plant) -> None:
    assert words.stubs(plant({OPS: "class A(Protocol):\n    def f(self): ...\n"})) == []


def test_a_command_may_have_only_its_help(plant: Plant) -> None:
    code = 'def root():\n    """What it is for."""\n\napp.callback()(root)\n'
    assert words.stubs(plant({OPS: code})) == []


def test_messages_and_pages_are_in_plain_words(house: Path) -> None:
    none_of(figures.figures(house))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("rank 1 is silent since 3 s", "has been ... for"),
        ("x is no number", "is not a"),
        ("it goes\non from here", "continue, or resume"),
        ("A refuted schedule", "not valid"),
        ("priced with these times", "cost, times and sizes, or simulate"),
    ],
)
@pytest.mark.parametrize("path", [OPS, "README.md"])
def test_a_figure_of_speech_is_found(plant: Plant, path: str, text: str, plain: str) -> None:
    (complaint,) = figures.figures(plant({path: f"message = {text!r}\n" if path == OPS else text}))
    assert complaint.startswith(f"{path}:1: ")
    assert complaint.endswith(f"say {plain}")


@pytest.mark.parametrize(
    "text", ["there is no op", "it is no longer equal", "after", "`priced`", "since the last step"]
)
def test_plain_words_and_code_are_left_alone(plant: Plant, text: str) -> None:
    assert figures.figures(plant({"README.md": text})) == []


def test_a_docstring_and_a_decision_may_say_more(plant: Plant) -> None:
    files = {OPS: '"""Nobody reads it."""\n', "docs/decisions/0001.md": "made anew"}
    assert figures.figures(plant(files)) == []
