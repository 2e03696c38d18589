"""Rows of Parquet and Arrow files, and of folders that `datasets` writes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.data.open_source import source_files
from penstock.data.records.files import RecordFiles
from penstock.data.records.reader import RecordReader
from penstock.data.records.tables import dataset_files
from penstock.data.settings import DataSettings
from penstock.data.sources import SourceText, SourceTokens
from penstock.errors import RunError, ShapeError

RECORDS: list[dict[str, Any]] = [
    {"prompt": f"question {number} ", "completion": f"answer {number}", "picture": b"\xff" * 9}
    for number in range(5)
]


@pytest.fixture
def arrow() -> Any:
    return pytest.importorskip("pyarrow", reason="needs the package pyarrow (the extra `tables`)")


def write(arrow: Any, path: Path, records: list[dict[str, Any]]) -> Path:
    """A table in the format that the ending says; `.stream.arrow` is what `datasets` writes."""
    table = arrow.Table.from_pylist(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path, row_group_size=2)
        return path
    opened = arrow.ipc.new_stream if ".stream" in path.name else arrow.ipc.new_file
    with opened(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def write_dataset(arrow: Any, folder: Path, records: list[dict[str, Any]]) -> Path:
    """A folder as `Dataset.save_to_disk` leaves it."""
    names = ["data-00000-of-00002.stream.arrow", "data-00001-of-00002.stream.arrow"]
    for name, some in zip(names, (records[:2], records[2:])):
        write(arrow, folder / name, some)
    state = {"_data_files": [{"filename": name} for name in names], "_format_type": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    write(arrow, folder / "cache-0123.arrow", records[:1])  # what a map left is no part of it
    return folder


def texts(files: list[Path], limit: int = 0) -> list[str]:
    found = RecordFiles(files, RecordReader(), limit).documents()
    return [document.text for document in found if isinstance(document, SourceText)]


EXPECTED = [record["prompt"] + record["completion"] for record in RECORDS]


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.stream.arrow"])
def test_every_row_is_a_record_as_a_line_of_json_is(arrow: Any, tmp_path: Path, name: str) -> None:
    path = write(arrow, tmp_path / name, RECORDS)
    source = RecordFiles([path], RecordReader(), 0)
    documents = list(source.documents())
    assert [one.text for one in documents if isinstance(one, SourceText)] == EXPECTED
    assert all(one.counted and one.counted[0][0] == len("question 0 ") for one in documents)  # type: ignore[union-attr]
    assert sum(one.size for one in documents) == source.size == path.stat().st_size
    assert source.place(3) == f"row 3 of {str(path)!r}"


def test_a_folder_of_datasets_has_the_files_that_it_lists(arrow: Any, tmp_path: Path) -> None:
    folder = write_dataset(arrow, tmp_path / "saved", RECORDS)
    settings = DataSettings(source="records", paths=(str(folder),))
    assert texts(list(source_files(settings, settings.paths))) == EXPECTED


def test_files_of_several_kinds_follow_each_other(arrow: Any, tmp_path: Path) -> None:
    lines = tmp_path / "b.jsonl"
    lines.write_text('{"text": "a line"}\n\n{"text": "another"}\n')
    files = [write(arrow, tmp_path / "a.parquet", RECORDS[:1]), lines]
    files.append(write(arrow, tmp_path / "c.arrow", RECORDS[1:2]))
    assert texts(files) == [EXPECTED[0], "a line", "another", EXPECTED[1]]
    source = RecordFiles(files, RecordReader(), 0)
    places = [source.place(number) for number in range(4)]
    assert [place.split(" of ")[0] for place in places] == ["row 0", "line 1", "line 3", "row 0"]
    assert texts(files, files[0].stat().st_size + 25) == [EXPECTED[0], "a line"]


def test_a_limit_below_the_first_record_is_refused_with_its_place(
    arrow: Any, tmp_path: Path
) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text('\n{"text": "a line"}\n')
    with pytest.raises(ShapeError, match=r"limit_bytes is 18, but .*, line 2 of .*, has 19 bytes"):
        texts([lines], 18)
    with pytest.raises(ShapeError, match=r"but the first document, row 0 of '.*x\.arrow', has"):
        texts([write(arrow, tmp_path / "x.arrow", RECORDS)], 1)


def test_ready_tokens_of_a_table(arrow: Any, tmp_path: Path) -> None:
    path = write(arrow, tmp_path / "x.parquet", [{"input_ids": [5, 6], "labels": [-100, 6]}])
    (found,) = RecordFiles([path], RecordReader(), 0).documents()
    assert isinstance(found, SourceTokens)
    assert found.counted is not None
    assert (found.tokens.tolist(), found.counted.tolist()) == ([5, 6], [False, True])


def test_a_row_that_cannot_be_read_is_named(arrow: Any, tmp_path: Path) -> None:
    path = write(arrow, tmp_path / "x.arrow", [{"text": "a"}, {"text": None}])
    with pytest.raises(ShapeError, match=r"row 1 of '.*x\.arrow' has null in 'text'"):
        texts([path])


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_a_file_that_is_no_table_is_named(arrow: Any, tmp_path: Path, name: str) -> None:
    whole = write(arrow, tmp_path / name, RECORDS).read_bytes()
    for content in (b"", b"nothing", whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ShapeError, match=f"{name}"):
            texts([tmp_path / name])


def test_a_file_of_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=r"x\.csv' does not say what it holds"):
        texts([tmp_path / "x.csv"])


def test_several_tables_and_selections_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ShapeError, match="has several tables: train, test") as refusal:
        dataset_files(tmp_path)
    assert str(tmp_path / "train") in refusal.value.hint
    (tmp_path / "dataset_dict.json").unlink()
    for state, words in (
        (
            {"_data_files": [{"filename": "a"}], "_indices_data_files": [1]},
            "is a selection of rows",
        ),
        ({"_data_files": []}, "lists no files"),
        ({"_data_files": [{"filename": "../a"}]}, "lists no files"),
    ):
        (tmp_path / "state.json").write_text(json.dumps(state))
        with pytest.raises(ShapeError, match=words):
            dataset_files(tmp_path)


def test_a_machine_without_pyarrow_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").touch()
    with pytest.raises(RunError, match=r"needs the package pyarrow") as refusal:
        texts([tmp_path / "x.parquet"])
    assert refusal.value.hint == "pip install 'penstock[tables]'"
