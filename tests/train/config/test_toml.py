"""Places of keys, and values that are written as they are read."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.files.toml_places import Path, line_of, parse, places
from penstock.train.config.toml_text import value_text, written
from train.samples import texts, usual

TRICKY = '''\
# key = 1
[a] # the first table
text = """
[b]
key = 2
"""
list = [
  "key = 3", # key
]
other.key = 4

[b]
  key = 5
[b.inner]
"quoted key" = 6
'''


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("a",), (2, 2)),
        (("a", "text"), (3, 1)),
        (("a", "list"), (7, 1)),
        (("a", "other", "key"), (10, 7)),
        (("b",), (12, 2)),
        (("b", "key"), (13, 3)),
        (("b", "inner"), (14, 4)),
        (("b", "inner", "quoted key"), (15, 2)),
    ],
)
def test_a_key_is_found_among_texts_that_look_like_it(path: Path, where: tuple[int, int]) -> None:
    assert line_of(TRICKY, places(TRICKY)[path]) == where


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("a = \n", 1, 5), ("a = 1\n\nb", 3, 2), ('a = """\n\n', 3, 1), ("a = 1\na = 2\n", 2, 6)],
)
def test_what_is_no_toml_is_refused_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(FormatError, match="not TOML"):
        parse(f"a = {'1' * 5000}\n")


plain = st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


@usual
@given(st.dictionaries(texts, st.dictionaries(texts, plain | st.lists(plain, max_size=3))))
def test_tables_read_back_as_they_were_written(tables: dict[str, dict[str, object]]) -> None:
    assert tomllib.loads(written(tables)) == tables


@usual
@given(values)
def test_a_value_reads_back_as_it_was_written(value: object) -> None:
    assert tomllib.loads(f"key = {value_text(value)}") == {"key": value}


def test_a_table_inside_a_table_stands_behind_its_keys() -> None:
    assert written({"a": {"inner": {"x": 1}, "y": 2}}) == "[a]\ny = 2\n\n[a.inner]\nx = 1\n"


def paths_of(tables: dict[str, object], above: Path = ()) -> set[Path]:
    inner = [(above + (name,), value) for name, value in tables.items()]
    below = [paths_of(value, path) for path, value in inner if isinstance(value, dict)]
    return {path for path, _ in inner}.union(*below)


@usual
@given(
    st.dictionaries(texts, st.dictionaries(texts, values, max_size=3), max_size=3), st.booleans()
)
def test_every_key_has_its_place(tables: dict[str, dict[str, object]], inline: bool) -> None:
    lines = (f"{value_text(name)} = {value_text(value)}" for name, value in tables.items())
    text = "\n".join(lines) if inline else written(tables)
    found = places(text)
    assert paths_of(tables) <= found.keys()
    assert all(text[at:].startswith(value_text(path[-1])[1:-1]) for path, at in found.items())


def test_what_looks_like_a_key_inside_a_value_is_none() -> None:
    text = "a = [\n  {x = 1, y = [{z = 2}]}, # b = 3\n  {x = '''c = 4\n'''}]\n[[d]]\ne.f = {}\n"
    assert places(text) == {
        ("a",): 0,
        ("a", "x"): 9,
        ("a", "y"): 16,
        ("a", "y", "z"): 22,
        ("d",): text.index("d]]"),
        ("d", "e"): text.index("e.f"),
        ("d", "e", "f"): text.index("f = {}"),
    }
