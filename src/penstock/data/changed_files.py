"""Which files have changed since a run was stored.

A run goes on with the documents that it began with. That they are others shows in a fingerprint of
all of them, which tells nobody what to put back. So a checkpoint keeps a mark of each file too,
unless there are very many. A file that has moved is told by its mark, and one that has changed by
its path.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.data._digest import FileMark
from penstock.errors import ShapeError, shown

FILES = "files"
"""Where a checkpoint has the marks of files, by their paths."""
MOST_FILES = 2000
"""Files of which a checkpoint keeps marks: it has some 150 bytes for each."""
NAMED_FILES = 3
"""Files of each kind that a message names."""


class FileChanges(NamedTuple):
    """Paths of files that are not as they were."""

    changed: list[str]
    gone: list[str]
    new: list[str]

    @property
    def words(self) -> str:
        """The changes as a person reads them.

        >>> FileChanges(["a"], [], ["b", "c"]).words
        "'a' has changed; 'b' and 'c' are new"
        """
        parts = (
            (self.changed, "has changed", "have changed"),
            (self.gone, "is gone", "are gone"),
            (self.new, "is new", "are new"),
        )
        return "; ".join(
            f"{_named(paths)} {one if len(paths) == 1 else many}"
            for paths, one, many in parts
            if paths
        )


def _named(paths: Sequence[str]) -> str:
    names = [shown(path, 300) for path in paths[:NAMED_FILES]]
    if (more := len(paths) - NAMED_FILES) > 0:
        names.append(f"{more:,} more")
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def file_changes(then: Mapping[str, str], now: Mapping[str, str]) -> FileChanges:
    """What differs; marks are by path.

    >>> file_changes({"a": "1", "b": "2", "c": "3"}, {"moved/a": "1", "b": "4", "d": "5"})
    FileChanges(changed=['b'], gone=['c'], new=['d'])
    """
    changed = [path for path in then if path in now and then[path] != now[path]]
    marks_then, marks_now = {*then.values()}, {*now.values()}
    gone = [path for path in then if path not in now and then[path] not in marks_now]
    new = [path for path in now if path not in then and now[path] not in marks_then]
    return FileChanges(changed, gone, new)


def marks_by_path(files: Sequence[FileMark]) -> dict[str, dict[str, str]]:
    """What a checkpoint keeps of files; nothing where they are too many."""
    return {FILES: dict(files)} if 0 < len(files) <= MOST_FILES else {}


def refuse_changed_files(state: Mapping[str, Any], files: Sequence[FileMark]) -> None:
    """Name what has changed, where a checkpoint has kept marks of its files."""
    then, now = state.get(FILES), dict(files)
    if not isinstance(then, Mapping) or not all(isinstance(mark, str) for mark in then.values()):
        return
    if words := file_changes(then, now).words:
        raise ShapeError(
            f"the data are not those of the stored run: {words}",
            hint="put the files back as they were and name the same ones in data.paths, or start a "
            "new run from the exported weights of the stored one",
        )
    if [*then.values()] != [*now.values()]:
        raise ShapeError(
            "the data are not those of the stored run: the files are the same, but come in another "
            "order or not as often",
            hint="name them in data.paths in their old order, and give moved files their old names",
        )
    raise ShapeError(
        "the data are not those of the stored run: the files are the same, but not what is made of "
        "them",
        hint="resume with the tokenizer, the chat template and the [data] settings of the stored "
        "run, or start a new run from its exported weights",
    )
