"""A run that finds other data than it was stored with says which files are others."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data import DataSettings, SampleStream, open_data
from penstock.data.changed_files import FILES, MOST_FILES, NAMED_FILES, file_changes
from penstock.errors import ShapeError

pytestmark = pytest.mark.torch


def written(folder: Path, *names: str) -> list[Path]:
    """Files of one record each, all different."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.jsonl" for name in names]
    for path in paths:
        path.write_text(json.dumps({"text": path.stem * 20}) + "\n")
    return paths


def opened(paths: Sequence[Path], **settings: Any) -> SampleStream:
    given = DataSettings(paths=tuple(map(str, paths)), **{"source": "jsonl", **settings})
    return open_data(given, 4, 1 << 16, 0, paths[0].parent / "cache").train


def refusal(stored: SampleStream, now: SampleStream) -> ShapeError:
    """A run that was stored and read back does not go on with these data."""
    state = json.loads(json.dumps(stored.state(3)))
    with pytest.raises(ShapeError) as refused:
        now.resume(state)
    assert refused.value.hint
    return refused.value


@pytest.mark.parametrize("source", ["jsonl", "text", "records"])
def test_a_file_that_has_changed_is_named(tmp_path: Path, source: str) -> None:
    paths = written(tmp_path, "a", "b", "c")
    stored = opened(paths, source=source)
    paths[1].write_text(json.dumps({"text": "another one"}))
    said = refusal(stored, opened(paths, source=source))
    assert said.message.endswith(f"those of the stored run: {str(paths[1])!r} has changed")
    assert "put the files back" in str(said.hint)


def test_files_that_are_gone_and_new_are_named(tmp_path: Path) -> None:
    a, b, c, d = written(tmp_path, "a", "b", "c", "d")
    said = refusal(opened([a, b, c]), opened([a, d])).message
    assert said.endswith(f"{str(b)!r} and {str(c)!r} are gone; {str(d)!r} is new")


def test_files_that_only_moved_are_the_same_data(tmp_path: Path) -> None:
    stored, moved = (opened(written(tmp_path / name, "a", "b")) for name in ("old", "new"))
    assert moved.resume(stored.state(3)) == 3
    (tmp_path / "new" / "b.jsonl").write_text(json.dumps({"text": "another one"}))
    said = refusal(stored, opened([tmp_path / "new" / f"{name}.jsonl" for name in "ab"])).message
    assert "b.jsonl' is gone" in said
    assert "b.jsonl' is new" in said
    assert "a.jsonl" not in said


def test_the_same_files_in_another_order_or_read_in_another_way_are_told_apart(
    tmp_path: Path,
) -> None:
    paths = written(tmp_path, "a", "b")
    stored = opened(paths)
    assert "come in another order" in refusal(stored, opened(paths[::-1])).message
    other = refusal(stored, opened(paths, held_out=0.5))
    assert "the files are the same, but not what is made of them" in other.message
    assert "[data] settings" in str(other.hint)


def test_sources_of_a_mixture_are_named_too(tmp_path: Path) -> None:
    paths = written(tmp_path, "a", "b")
    stored = opened(paths, weights=(0.5, 0.5))
    paths[0].write_text(json.dumps({"text": "another one"}))
    said = refusal(stored, opened(paths, weights=(0.5, 0.5))).message
    assert f"{str(paths[0])!r} has changed" in said
    assert str(paths[1]) not in said


@pytest.mark.parametrize("changed", ["x.npy", "x.documents.npy", "x.mask.npy"])
def test_of_ready_tokens_the_file_beside_them_is_named(tmp_path: Path, changed: str) -> None:
    arrays = {"x.npy": np.arange(40), "x.documents.npy": [0, 9], "x.mask.npy": [1] * 40}
    for name, content in arrays.items():
        np.save(tmp_path / name, np.array(content))
    stored = opened([tmp_path / "x.npy"], source="tokens")
    other = {"x.npy": np.arange(1, 41), "x.documents.npy": [0, 8], "x.mask.npy": [1, 0] * 20}
    np.save(tmp_path / changed, np.array(other[changed]))
    said = refusal(stored, opened([tmp_path / "x.npy"], source="tokens")).message
    assert said.endswith(f"{str(tmp_path / changed)!r} has changed")


@pytest.mark.parametrize("kept", [None, [], 3, {"a": 1}])
def test_a_checkpoint_without_marks_of_files_is_read_as_before(tmp_path: Path, kept: Any) -> None:
    paths = written(tmp_path, "a", "b")
    stored = opened(paths)
    state = stored.state(3)
    del state[FILES]
    old = state if kept is None else {**state, FILES: kept}
    assert stored.resume(old) == 3
    with pytest.raises(ShapeError, match=f"data of fingerprint {stored.fingerprint}, but now it"):
        opened(paths[:1]).resume(old)


def test_of_very_many_files_no_marks_are_kept(tmp_path: Path) -> None:
    paths = written(tmp_path, *map(str, range(MOST_FILES + 1)))
    assert FILES in opened(paths[:-1]).state(0)
    assert FILES not in opened(paths).state(0)


def test_of_many_changes_some_are_named_and_all_counted() -> None:
    now = {str(number): "x" for number in range(NAMED_FILES + 2)}
    assert file_changes({}, now).words == "'0', '1', '2' and 2 more are new"


def test_a_file_that_became_like_another_one_has_changed() -> None:
    assert file_changes({"a": "1", "b": "2"}, {"a": "2", "b": "2"}).changed == ["a"]
