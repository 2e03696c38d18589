"""Tokens made elsewhere: mapped, never read whole, refused by name when they are no tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import outcome, thorough
from penstock.data.arrays import holds_tokens, open_array
from penstock.data.corpus import Array
from penstock.errors import ShapeError


def saved(path: Path, values: Any, dtype: str = "uint16") -> Path:
    np.save(path, np.array(values, dtype=dtype))
    return path


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64", ">u4"])
def test_an_array_is_mapped_as_one_document(tmp_path: Path, dtype: str) -> None:
    found = open_array(saved(tmp_path / "x.npy", [3, 1, 4], dtype), "uint16")
    assert isinstance(found.tokens, np.memmap)
    assert found.tokens.tolist() == [3, 1, 4]
    assert found.offsets.tolist() == [0, 3]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
def test_bare_numbers_are_mapped_with_the_given_type(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(np.array([3, 1, 4], dtype=np.dtype(dtype).newbyteorder("<")).tobytes())
    found = open_array(path, dtype)
    assert isinstance(found.tokens, np.memmap)
    assert found.tokens.tolist() == [3, 1, 4]


@pytest.mark.parametrize("name", ["x.npy", "x.bin"])
def test_document_starts_lie_beside_the_tokens(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "x.npy":
        saved(path, range(9))
    else:
        path.write_bytes(np.arange(9, dtype="<u2").tobytes())
    saved(tmp_path / "x.documents.npy", [0, 4, 4, 9], "uint64")
    assert open_array(path, "uint16").offsets.tolist() == [0, 4, 4, 9, 9]


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([], "does not start at 0"),
        ([1, 2], "does not start at 0"),
        ([0, 5, 3], "goes back from 5 to 3 at entry 2"),
        ([0, 10], "ends with a start at 10, but there are 9 tokens"),
        ([[0, 1]], "of shape (1, 2), not a list of integers"),
    ],
)
def test_wrong_document_starts_are_refused(tmp_path: Path, starts: list[Any], message: str) -> None:
    saved(tmp_path / "x.npy", range(9))
    saved(tmp_path / "x.documents.npy", starts, "uint32")
    with pytest.raises(ShapeError) as refusal:
        open_array(tmp_path / "x.npy", "uint16")
    assert "x.documents.npy" in refusal.value.message
    assert message in refusal.value.message


def test_starts_above_every_signed_number_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "x.npy", range(9))
    saved(tmp_path / "x.documents.npy", [0, 2**63 + 1], "uint64")
    with pytest.raises(ShapeError, match="ends with a start at 9223372036854775809"):
        open_array(tmp_path / "x.npy", "uint16")


@pytest.mark.parametrize(
    ("values", "dtype"), [([1.5], "float32"), ([[1, 2]], "uint16"), ("abc", "U3"), ([True], "bool")]
)
def test_an_array_of_something_else_is_refused(tmp_path: Path, values: Any, dtype: str) -> None:
    with pytest.raises(ShapeError, match="not a list of integers"):
        open_array(saved(tmp_path / "x.npy", values, dtype), "uint16")


def test_several_arrays_in_one_file_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(ShapeError, match=r"x\.npy' "):
        open_array(tmp_path / "x.npy", "uint16")


def test_an_empty_file_of_bare_numbers_has_no_tokens(tmp_path: Path) -> None:
    (tmp_path / "x.bin").touch()
    assert open_array(tmp_path / "x.bin", "uint16").offsets.tolist() == [0, 0]


def test_an_empty_array_has_no_tokens(tmp_path: Path) -> None:
    assert open_array(saved(tmp_path / "x.npy", []), "uint16").offsets.tolist() == [0, 0]


def test_half_a_token_at_the_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"12345")
    with pytest.raises(
        ShapeError, match="has 5 bytes, which is not a multiple of the size of uint16"
    ):
        open_array(tmp_path / "x.bin", "uint16")


@pytest.mark.parametrize("name", ["x.npy", "x.bin"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ShapeError, match=r"cannot read .*No such file"):
        open_array(tmp_path / name, "uint16")


@thorough
@given(data=st.data())
def test_a_damaged_array_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    np.save(path, np.arange(30, dtype=np.uint16))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    to = data.draw(st.integers(at, min(at + 6, len(whole))))
    path.write_bytes(whole[:at] + data.draw(st.binary(max_size=6)) + whole[to:])
    found = outcome(lambda: open_array(path, "uint16"))
    if isinstance(found, Array):
        assert (found.tokens.ndim, found.tokens.dtype.kind in "iu") == (1, True)
    else:
        assert "damaged.npy" in found.message


def test_the_fingerprint_sees_size_type_starts_and_contents(tmp_path: Path) -> None:
    values = np.arange(100) % 50
    changed = values.copy()
    changed[57] = 51
    marks = {
        open_array(saved(tmp_path / f"{dtype}{number}.npy", array, dtype), "uint16").fingerprint
        for dtype in ("uint16", "int32")
        for number, array in enumerate((values, changed, values[:-1]))
    }
    saved(tmp_path / "uint160.documents.npy", [0, 7])
    marks.add(open_array(tmp_path / "uint160.npy", "uint16").fingerprint)
    assert len(marks) == 7


def test_the_fingerprint_is_the_same_elsewhere(tmp_path: Path) -> None:
    first, second = (saved(tmp_path / name, range(9)) for name in ("a.npy", "b.npy"))
    assert open_array(first, "uint8").fingerprint == open_array(second, "uint8").fingerprint


def test_document_starts_are_no_tokens() -> None:
    names = ["a.npy", "a.documents.npy", "a.bin", "a.txt"]
    assert [name for name in names if holds_tokens(Path(name))] == ["a.npy", "a.bin"]


def test_a_mask_beside_the_tokens_says_what_counts(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6))
    plain = open_array(tmp_path / "x.npy", "uint16")
    assert plain.runs is None
    np.save(tmp_path / "x.mask.npy", np.array([0, 1, 1, 0, 1, 1], dtype=np.uint8))
    masked = open_array(tmp_path / "x.npy", "uint16")
    assert masked.runs is not None
    assert masked.runs.tolist() == [1, 3, 4, 6]
    assert masked.fingerprint != plain.fingerprint
    assert [path.name for path in tmp_path.iterdir() if holds_tokens(path)] == ["x.npy"]
    for wrong, words in (
        ([0, 1], "has 2 entries for 6 tokens"),
        ([0, 2, 0, 0, 0, 0], "has 0 to 2"),
    ):
        np.save(tmp_path / "x.mask.npy", np.array(wrong))
        with pytest.raises(ShapeError, match=words):
            open_array(tmp_path / "x.npy", "uint16")
