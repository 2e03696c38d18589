"""Text files and the standard library as documents."""

import os
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import outcome, usual
from penstock.data.sources import SourceText, TextFiles, standard_library, up_to
from penstock.errors import ShapeError


def written(folder: Path, *contents: bytes) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents):
        path.write_bytes(content)
    return paths


def test_a_file_is_a_document_as_it_stands(tmp_path: Path) -> None:
    source = TextFiles(written(tmp_path, "one\r\ntwo\u00e9".encode(), b""))
    assert [document.text for document in source.documents()] == ["one\r\ntwo\u00e9", ""]
    assert source.size == 10


def test_bytes_that_are_not_text_are_replaced_and_counted(tmp_path: Path) -> None:
    content = b"caf\xe9 and \xff, a few in many letters; \xef\xbf\xbd was there before"
    (document,) = TextFiles(written(tmp_path, content)).documents()
    assert document.replaced == 2
    assert document.text.count("\ufffd") == 3


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    (path,) = written(tmp_path, b"\x89PNG\xff\xfe\xfd")
    with pytest.raises(ShapeError, match=r"0\.txt' is not text: 4 of 7 characters"):
        list(TextFiles([path]).documents())


@usual
@given(content=st.binary(max_size=40))
def test_any_bytes_are_a_document_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    found = outcome(lambda: next(TextFiles([path]).documents()))
    if isinstance(found, SourceText):
        assert found.replaced or found.text.encode() == content
    else:
        assert "is not text" in found.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (path,) = written(tmp_path, b"text")
    source = TextFiles([path])
    path.unlink()
    for use in (source.fingerprint, lambda: list(source.documents()), lambda: TextFiles([path])):
        with pytest.raises(ShapeError, match=r"cannot read '.*0\.txt': No such file"):
            use()


def test_the_fingerprint_is_of_the_contents_in_their_order(tmp_path: Path) -> None:
    a, b = written(tmp_path, b"same", b"other")
    moved = tmp_path / "elsewhere"
    os.link(a, moved)
    assert TextFiles([a, b]).fingerprint() == TextFiles([moved, b]).fingerprint()
    assert TextFiles([a, b]).fingerprint() != TextFiles([b, a]).fingerprint()
    joined = written(tmp_path, b"sameother")
    assert TextFiles(joined).fingerprint() != TextFiles([b, a]).fingerprint()


def test_a_limit_takes_whole_files_from_the_first(tmp_path: Path) -> None:
    files = written(tmp_path, b"1234", b"123456", b"1")
    assert up_to(files, 0) == files
    assert up_to(files, 11) == files
    assert up_to(files, 10) == files[:2]
    assert up_to(files, 9) == files[:1]  # the third would fit, but comes after one that does not
    with pytest.raises(ShapeError, match=r"limit_bytes is 3, but .*0\.txt', has 4 bytes"):
        up_to(files, 3)


def test_the_standard_library_is_sorted_and_has_no_foreign_packages() -> None:
    root = Path(sysconfig.get_path("stdlib"))
    inside = [path.relative_to(root).as_posix() for path in standard_library()]
    assert inside == sorted(inside)
    assert {"abc.py", "json/decoder.py"} < set(inside)
    assert not [path for path in inside if "site-packages" in path or "/test/" in f"/{path}"]


def test_a_library_without_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(ShapeError, match="has no Python sources"):
        standard_library()
