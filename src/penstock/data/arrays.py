"""Tokens that somebody else has made: `.npy` arrays, or the bare numbers in a `.bin` file.

Beside `name.npy` or `name.bin` there may be `name.documents.npy`, which says where documents start;
without it a file is one document. `name.mask.npy` has a 1 for each token that counts in the loss;
without it all do. Tokens are memory-mapped and never read whole: their fingerprint looks at their
size and at pieces spread over them.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.data._digest import FileMark, digest, unreadable
from penstock.data.corpus import Array, Longs
from penstock.errors import ShapeError
from penstock.files.regular import open_regular

DOCUMENTS, MASK = ".documents.npy", ".mask.npy"
PROBES = 64
"""Pieces of a file that its fingerprint looks at, the first and the last among them."""
PROBE = 1 << 14
"""Tokens of such a piece."""


def holds_tokens(path: Path) -> bool:
    """Whether a file in a folder is one of tokens."""
    return path.suffix in (".npy", ".bin") and not path.name.endswith((DOCUMENTS, MASK))


def open_array(path: Path, dtype: str) -> Array:
    """The tokens of a file, memory-mapped; `dtype` is for a file that does not say its own."""
    tokens = _numpy(path) if path.suffix == ".npy" else _raw(path, dtype)
    beside = path.with_suffix(DOCUMENTS)
    offsets = _offsets(beside, len(tokens)) if beside.exists() else _offsets_of_one(len(tokens))
    probed, name = _probed(tokens), repr(str(path))
    mark = digest("tokens", tokens.dtype.str, len(tokens), probed, offsets.tobytes())
    files = [FileMark(str(path), digest(tokens.dtype.str, len(tokens), probed))]
    if beside.exists():
        files.append(FileMark(str(beside), digest(offsets.tobytes())))
    masked = path.with_suffix(MASK)
    if not masked.exists():
        return Array(name, tokens, offsets, mark, files=tuple(files))
    runs = _runs(masked, len(tokens))
    files.append(FileMark(str(masked), digest(runs.tobytes())))
    mark = digest(mark, runs.tobytes())
    return Array(name, tokens, offsets, mark, runs, files=tuple(files))


def _numpy(path: Path) -> NDArray[Any]:
    try:
        open_regular(path).close()  # a pipe would be waited for
        found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # the header is parsed as Python, and fails in as many ways
        raise _refusal(path, f"is not a NumPy array: {str(error)[:120]}") from None
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
        shape = getattr(found, "shape", "several arrays")
        kind = getattr(found, "dtype", "unknown")
        raise _refusal(path, f"holds {kind} of shape {shape}, not a list of integers")
    return found


def _raw(path: Path, dtype: str) -> NDArray[Any]:
    stored = np.dtype(dtype).newbyteorder("<")
    try:
        size = path.stat().st_size
        if size % stored.itemsize:
            raise _refusal(
                path, f"has {size:,} bytes, which is not a multiple of the size of {dtype}"
            )
        return np.memmap(path, dtype=stored, mode="r") if size else np.empty(0, stored)
    except OSError as error:
        raise unreadable(path, error) from None


def _offsets_of_one(tokens: int) -> Longs:
    return np.array([0, tokens], dtype=np.int64)


def _offsets(path: Path, tokens: int) -> Longs:
    """Document starts from a file, and the end."""
    starts = _numpy(path)
    wrong = np.flatnonzero(starts[1:] < starts[:-1])
    if not len(starts) or starts[0] != 0:
        raise _refusal(path, "does not start at 0, where the first document starts")
    if len(wrong):
        at = int(wrong[0])
        raise _refusal(path, f"goes back from {starts[at]} to {starts[at + 1]} at entry {at + 1}")
    if starts[-1] > tokens:
        raise _refusal(path, f"ends with a start at {starts[-1]}, but there are {tokens:,} tokens")
    return np.append(starts.astype(np.int64), tokens)


def _runs(path: Path, tokens: int) -> Longs:
    """Where tokens begin and cease to count, by a mask in a file."""
    mask = _numpy(path)
    if len(mask) != tokens:
        raise _refusal(path, f"has {len(mask):,} entries for {tokens:,} tokens")
    if len(mask) and not (mask.min() >= 0 and mask.max() <= 1):
        raise _refusal(path, f"has {mask.min()} to {mask.max()}, not 0 and 1 only")
    return np.flatnonzero(np.diff(mask == 1, prepend=False, append=False)).astype(np.int64)


def _probed(tokens: NDArray[Any]) -> bytes:
    last = max(len(tokens) - PROBE, 0)
    places = sorted({last * probe // (PROBES - 1) for probe in range(PROBES)})
    return b"".join(tokens[place : place + PROBE].tobytes() for place in places)


def _refusal(path: Path, what: str) -> ShapeError:
    return ShapeError(
        f"{str(path)!r} {what}",
        hint="tokens are a 1-D .npy of integers or a .bin of data.dtype, document starts a "
        "1-D .npy that begins with 0 and ascends, a mask one with a 0 or 1 for each token",
    )
