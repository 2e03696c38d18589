"""What a run is trained on, as its configuration says it.

Torch is not needed to read this: a launcher checks the settings before any process starts.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.errors import ShapeError, nearest

SourceName = Literal["text", "jsonl", "tokens", "stdlib"]
PolicyName = Literal["pack", "chunk"]
StoredDtype = Literal["uint8", "uint16", "uint32", "int32", "int64"]
"""What the tokens of a raw file may be stored in, little-endian."""
SOURCES: tuple[str, ...] = get_args(SourceName)
POLICIES: tuple[str, ...] = get_args(PolicyName)
DTYPES: tuple[str, ...] = get_args(StoredDtype)


@dataclass(frozen=True)
class DataSettings:
    """Where the documents come from, how they become tokens, and which are held out."""

    source: SourceName = "stdlib"
    """text (a file is a document), jsonl (a line is one), tokens (arrays), or stdlib (the sources
    of Python's standard library, which every machine has)."""
    paths: tuple[str, ...] = ()
    """Files, folders or patterns such as `books/**/*.txt`; stdlib has none."""
    field: str = "text"
    """Field of a JSON line that holds the document."""
    tokenizer: str = "byte"
    """byte, or the path of a Hugging Face `tokenizer.json` or of the folder that holds it."""
    end_token: str = ""
    """Token put after every document, as text such as `<|endoftext|>`; empty for none."""
    dtype: StoredDtype = "uint16"
    """Type of the tokens of a `.bin` file; a `.npy` file has its own."""
    held_out: float = 0.0
    """Share of the documents kept for evaluation, 0 to below 1."""
    held_out_paths: tuple[str, ...] = ()
    """Files, folders or patterns of documents for evaluation only."""
    limit_bytes: int = 0
    """Take whole documents up to this much text; 0 takes all."""
    policy: PolicyName = "pack"
    """How the sequences of a step become microbatches. `pack`: each is one, as long as
    `batch.length`. `chunk`: their documents are packed into slices and long ones cut, with an order
    of its own for every batch (ChunkFlow)."""
    slice_tokens: int = 0
    """With `chunk`: tokens of a slice at most; 0 chooses from the lengths of the data."""

    def __post_init__(self) -> None:
        for name, known in (
            ("source", SOURCES),
            ("dtype", DTYPES),
            ("policy", POLICIES),
        ):
            if (value := getattr(self, name)) not in known:
                raise ShapeError(f"data.{name} is {value!r}", hint=nearest(str(value), list(known)))
        self._refuse_numbers()
        self._refuse_paths()
        self._refuse_tokens()

    def _refuse_numbers(self) -> None:
        if not 0 <= self.held_out < 1:
            raise ShapeError(
                f"data.held_out is {self.held_out}", hint="give a share from 0 to below 1"
            )
        if self.limit_bytes < 0:
            raise ShapeError(
                f"data.limit_bytes is {self.limit_bytes}", hint="give a number of bytes, 0 for all"
            )
        if self.slice_tokens < 0 or (self.slice_tokens and self.policy != "chunk"):
            raise ShapeError(
                f"data.slice_tokens is {self.slice_tokens} and data.policy is {self.policy!r}",
                hint='give 0, or a number of tokens with data.policy = "chunk"',
            )
        if self.held_out and self.held_out_paths:
            raise ShapeError(
                f"data.held_out is {self.held_out}, but data.held_out_paths names documents too",
                hint="hold out a share or name the documents, not both",
            )

    def _refuse_paths(self) -> None:
        for name in ("paths", "held_out_paths"):
            if isinstance(getattr(self, name), str):
                raise ShapeError(f"data.{name} is one string", hint="give a list of paths")
        if self.source == "stdlib" and (self.paths or self.held_out_paths):
            raise ShapeError(
                f"data.source is 'stdlib', but paths are given: "
                f"{', '.join((*self.paths, *self.held_out_paths))}",
                hint="set data.source to 'text', 'jsonl' or 'tokens', or leave the paths out",
            )
        if self.source != "stdlib" and not self.paths:
            raise ShapeError(
                f"data.source is {self.source!r}, but data.paths is empty",
                hint="name files, folders or patterns in data.paths",
            )

    def _refuse_tokens(self) -> None:
        """Settings that would be passed over in silence."""
        for name in ("limit_bytes", "end_token"):
            if self.source == "tokens" and getattr(self, name):
                raise ShapeError(
                    f"data.{name} is {getattr(self, name)!r}, but data.source is 'tokens'",
                    hint=f"leave data.{name} out: arrays are taken as they are",
                )
