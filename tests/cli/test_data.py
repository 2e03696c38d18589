"""`penstock data stats`: a corpus in numbers, before anything is trained."""

import json
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from cli.conftest import Penstock
from penstock.cli import _progress

LENGTHS = [1, 3, 9, 20, 64, 200]


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "x.jsonl"
    texts = ["a" * length for length in LENGTHS] + [""]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def test_the_answer_has_lengths_buckets_and_policies(penstock: Penstock, lines: Path) -> None:
    answer = penstock(f"data stats {lines} --length 64 --batch 128 --slice-tokens 16 --json")
    assert answer.code == 0
    found = answer.data
    assert (found["documents"], found["tokens"], found["longest"]) == (6, sum(LENGTHS), 200)
    assert found["percentiles"]["50"] == 9
    assert found["histogram"][0] == {"low": 1, "high": 1, "documents": 1, "tokens": 1}
    assert found["batch"] == {"length": 64, "tokens": 128, "slice_tokens": 16}
    assert [one["name"] for one in found["policies"]] == [
        "pack, cut",
        "pack, whole",
        "pack, single",
        "chunk",
    ]
    assert found["longer"] == 1
    assert "1 of 7 documents are empty and skipped, first line 7 of" in answer.err
    assert "1 of 6 documents have more than 64 tokens" in answer.err
    assert f"line 6 of {str(lines)!r}) is the longest with 200" in answer.err


def test_a_person_sees_bars_and_a_table(penstock: Penstock, lines: Path) -> None:
    answer = penstock(f"data stats {lines} --model tiny -p 2 --slice-tokens 64")
    assert answer.code == 0, answer.err
    assert "6 documents, 297 tokens, mean 49.5, longest 200" in answer.out
    assert "129 to 256    ####" in answer.out
    assert "tokens/s" in answer.out
    assert "memory of a rank" in answer.out
    assert "ms per step" not in penstock(f"data stats {lines}").out


def test_every_policy_has_a_row_with_time_and_memory(penstock: Penstock, lines: Path) -> None:
    found = penstock(f"data stats {lines} --model tiny -p 2 --batch 512 --slice-tokens 64 --json")
    rows = {row["name"]: row for row in found.data["policies"]}
    assert [*rows] == ["pack, cut", "pack, whole", "pack, single", "chunk", "flex"]
    assert all(row["seconds"] > 0 < row["memory"] and row["fits"] for row in rows.values())
    for name in ("chunk", "flex"):
        assert (rows[name]["tokens"], rows[name]["padding"]) == (sum(LENGTHS), 0)
    assert rows["chunk"]["largest"] == found.data["batch"]["slice_tokens"] == 64
    assert "chunk: slices of up to 64 tokens" in found.err


def test_the_size_of_slices_is_chosen_where_it_is_left_out(penstock: Penstock, lines: Path) -> None:
    found = penstock(f"data stats {lines} --model tiny -p 2 --json").data
    assert 1 <= found["batch"]["slice_tokens"] <= 200


def test_files_of_several_kinds_are_not_guessed(penstock: Penstock, lines: Path) -> None:
    """As text, all lines of the records would be one document."""
    other = lines.with_name("y.txt")
    other.write_text("a text")
    wrong = penstock(f"data stats {lines} {other}")
    assert wrong.code == 2
    assert "files of several kinds, by their endings: .jsonl, .txt" in wrong.err
    assert penstock(f"data stats {lines} {other} --source text --json").data["documents"] == 2


def test_a_folder_holds_records_or_else_arrays_or_else_text(
    penstock: Penstock, lines: Path
) -> None:
    for name, write in (
        ("a.txt", lambda path: path.write_text("a text")),
        ("b.npy", lambda path: np.save(path, np.arange(9))),
        ("c.jsonl", lambda path: path.write_text('{"text": "abc"}')),
    ):
        folder = lines.with_name("folder")
        folder.mkdir(exist_ok=True)
        write(folder / name)
        found = penstock(f"data stats {folder} --json")
        assert found.code == 0, found.err
        assert found.data["tokens"] == {"a.txt": 6, "b.npy": 9, "c.jsonl": 3}[name]


def test_a_step_smaller_than_a_sequence_is_refused_as_a_run_does(
    penstock: Penstock, lines: Path
) -> None:
    for flags, length in (("--batch 63 --length 64", 64), ("--batch 63", 200)):
        wrong = penstock(f"data stats {lines} {flags}")
        assert wrong.code == 2
        assert f"a step of 63 tokens has no room for a sequence of {length}" in wrong.err
    assert penstock(f"data stats {lines} --batch 64 --length 64").code == 0


def test_a_policy_that_cannot_be_run_is_named(penstock: Penstock, lines: Path) -> None:
    flags = "--model tiny -p 2 --slice-tokens 64"
    ring = penstock(f"data stats {lines} {flags} --mesh sequence=2,ring=2 --json")
    assert [row["name"] for row in ring.data["policies"]][-1] == "chunk"
    assert "flex is not shown: 2 ranks pass keys and values round" in ring.err
    wrong = penstock(f"data stats {lines} {flags} --schedule 1f1b")
    assert wrong.code == 2
    assert "1f1b has no order for sequences of unequal lengths" in wrong.err


def test_tokens_are_kept_between_two_looks(penstock: Penstock, lines: Path, tmp_path: Path) -> None:
    penstock(f"data stats {lines}")
    (kept,) = (tmp_path / "cache" / "penstock").glob("*.tokens")
    made = kept.stat().st_mtime_ns
    assert penstock(f"data stats {lines}").code == 0
    assert kept.stat().st_mtime_ns == made


def test_a_page_has_everything_in_one_file(penstock: Penstock, lines: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    assert penstock(f"data stats {lines} --model tiny --slice-tokens 64 --html {page}").code == 0
    text = page.read_text()
    assert "<svg" in text
    assert "pack, whole" in text
    assert f"<p>Of {lines}.</p>" in text
    assert text.count("<svg") == 2
    assert "http" not in text


def test_arrays_and_a_configuration_are_read_too(
    penstock: Penstock, lines: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.arange(30))
    found = penstock(f"data stats {tmp_path / 'x.npy'} --json").data
    assert (found["documents"], found["tokens"]) == (1, 30)
    config = tmp_path / "x.toml"
    config.write_text(
        f'[data]\nsource = "jsonl"\npaths = ["{lines}"]\n[batch]\nlength = 256\n'
        '[pipeline]\nschedule = "gpipe"\n'
    )
    sizes = {"length": 256, "tokens": 4 * 256, "slice_tokens": 32}
    assert penstock(f"data stats {config} --json").data["batch"] == sizes
    assert penstock(f"data stats {config} --batch 2K --json").data["batch"]["tokens"] == 2048


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--length none", "--length is 'none'"),
        ("--source nowhere", "there is no source 'nowhere'"),
        ("--format chats", "data.format is 'chats'"),
        ("--model none", "none"),
        ("--model tiny --cluster none", "no cluster is called 'none'"),
        ("--model tiny --mesh sequence=0", "sequence"),
    ],
)
def test_misuse_is_refused_in_words(
    penstock: Penstock, lines: Path, flags: str, message: str
) -> None:
    answer = penstock(f"data stats {lines} {flags}")
    assert answer.code == 2
    assert message in answer.err
    assert "hint: " in answer.err


def test_few_documents_are_shown_as_they_are_and_it_is_said(
    penstock: Penstock, lines: Path
) -> None:
    """297 tokens are no sequence of 512, and all policies but one have what there is once."""
    answer = penstock(f"data stats {lines} --length 512 --batch 1K --json")
    rows = {row["name"]: row for row in answer.data["policies"]}
    assert [*rows] == ["pack, whole", "pack, single", "chunk"]
    assert all(row["tokens"] <= sum(LENGTHS) for row in rows.values())
    assert "pack, cut is not shown: a sequence has 512 tokens, but the documents" in answer.err
    assert "a step of 1,024 tokens is more than all documents, which have 297" in answer.err
    assert "is not shown" not in penstock(f"data stats {lines} --batch 297 --length 297").err


def test_conversations_are_read_with_a_template_that_is_named(
    penstock: Penstock, lines: Path
) -> None:
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "you"}]
    lines.write_text(json.dumps({"messages": turns}))
    without = penstock(f"data stats {lines}")
    assert without.code == 2
    assert "no chat template" in without.err
    template = lines.with_name("chat.jinja")
    template.write_text("{% for m in messages %}{{ m['content'] }}.{% endfor %}")
    found = penstock(f"data stats {lines} --chat-template {template} --json")
    assert found.code == 0, found.err
    assert found.data["tokens"] == len("hello.you.")


def test_weights_of_a_configuration_are_said_to_be_unused(penstock: Penstock, lines: Path) -> None:
    config = lines.with_name("x.toml")
    mixed = f'paths = ["{lines}", "{lines}"]\nweights = [3, 1]'
    config.write_text(
        f'[data]\nsource = "jsonl"\n{mixed}\n[batch]\nlength = 256\n'
        '[pipeline]\nschedule = "gpipe"\n'
    )
    assert "data.weights are not used here" in penstock(f"data stats {config} --json").err


def test_a_broken_line_is_named(penstock: Penstock, lines: Path) -> None:
    lines.write_text('{"text": "a"}\n{"text": \n')
    answer = penstock(f"data stats {lines}")
    assert answer.code == 2
    assert "line 2, column" in answer.err


def test_while_policies_are_compared_lines_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_progress, "EVERY", 0.01)
    with _progress.show_wait("comparing policies"):
        while "comparing policies: 0 s" not in capsys.readouterr().err:
            sleep(0.001)
