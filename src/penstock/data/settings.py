"""What a run is trained on, as its configuration says it.

Torch is not needed to read this: a launcher checks the settings before any process starts.
"""

import math
from dataclasses import dataclass
from datetime import date
from typing import Literal, get_args

from penstock.errors import ShapeError, nearest

SourceName = Literal["text", "jsonl", "records", "tokens", "stdlib"]
RecordFormat = Literal["auto", "text", "prompt", "instruction", "chat", "segments", "tokens"]
PackingName = Literal["cut", "whole", "single"]
LongerName = Literal["refuse", "drop", "truncate", "split"]
PolicyName = Literal["pack", "chunk", "flex", "auto"]
GroupsName = Literal["flexible", "batch-adaptive", "static"]
StoredDtype = Literal["uint8", "uint16", "uint32", "int32", "int64"]
"""What the tokens of a raw file may be stored in, little-endian."""
SOURCES: tuple[str, ...] = get_args(SourceName)
POLICIES: tuple[str, ...] = get_args(PolicyName)
GROUP_NAMES: tuple[str, ...] = get_args(GroupsName)
CUTTING, GROUPING = ("chunk", "auto"), ("flex", "auto")
"""Policies that may cut documents into slices, and that may form groups of ranks."""
DTYPES: tuple[str, ...] = get_args(StoredDtype)
RECORD_FORMATS: tuple[str, ...] = get_args(RecordFormat)
PACKINGS: tuple[str, ...] = get_args(PackingName)
LONGER: tuple[str, ...] = get_args(LongerName)
HOLD_RECORDS = ("jsonl", "records")
"""Sources whose documents are records."""


@dataclass(frozen=True)
class DataSettings:
    """Where the documents come from, how they become tokens, and which are held out."""

    source: SourceName = "stdlib"
    """text (a file is a document), jsonl (a line is one), records (lines of `.jsonl` and rows of
    `.parquet` and `.arrow` files, and folders that `datasets` writes), tokens (arrays), or stdlib
    (the sources of Python's standard library, which every machine has)."""
    paths: tuple[str, ...] = ()
    """Files, folders or patterns such as `books/**/*.txt`; stdlib has none."""
    weights: tuple[float, ...] = ()
    """Share of the sequences that each entry of `paths` gives; empty takes all documents alike."""
    format: RecordFormat = "auto"
    """What a record is: text, prompt (with completion), instruction (the same as a chat of two
    turns), chat (messages), segments, tokens (input_ids), or told by its fields (auto)."""
    field: str = "text"
    """Field of a record that holds its text."""
    tokenizer: str = "byte"
    """byte, or the path of a Hugging Face `tokenizer.json` or of the folder that holds it."""
    end_token: str = ""
    """Token put after every document, as text such as `<|endoftext|>`; empty for none."""
    chat_template: str = ""
    """File with a chat template in Jinja; empty uses the tokenizer's own."""
    template_date: str = "2024-07-26"
    """What chat templates are told to be the date of today, so that tokens do not depend on it."""
    dtype: StoredDtype = "uint16"
    """Type of the tokens of a `.bin` file; a `.npy` file has its own."""
    held_out: float = 0.0
    """Share of the documents kept for evaluation, 0 to below 1."""
    held_out_paths: tuple[str, ...] = ()
    """Files, folders or patterns of documents for evaluation only."""
    limit_bytes: int = 0
    """Take whole documents up to this much text; 0 takes all."""
    packing: PackingName = "cut"
    """cut (documents end to end, cut into sequences), whole (as many whole documents in a sequence
    as fit, then padding), or single (one document in each, then padding)."""
    longer: LongerName = "refuse"
    """Documents longer than `batch.length`, with whole or single: refuse them, drop them, truncate
    them, or split them into several sequences."""
    policy: PolicyName = "pack"
    """How the sequences of a step become microbatches. `pack`: each is one, as long as
    `batch.length`. `chunk`: their documents are packed into slices and long ones cut, with an order
    of its own for every batch (ChunkFlow). `flex`: their documents are worked on by groups of ranks
    of unequal sizes (`mesh.sequence`), planned for every batch (FlexSP). `auto`: that of the three
    which is fastest by simulation of the first batches, chosen once."""
    slice_tokens: int = 0
    """With `chunk` or `auto`: tokens of a slice at most; 0 chooses from the lengths of the data."""
    groups: GroupsName = "flexible"
    """With `flex`: `flexible` forms groups of any sizes in every microbatch, `batch-adaptive` those
    of the one size that is best for the batch, `static` those of `group_ranks` in all steps."""
    group_ranks: int = 0
    """With `static` groups: ranks of each; 0 takes the fewest that hold `batch.length` tokens."""
    rank_tokens: int = 0
    """With `flex` or `auto`: tokens of a microbatch that one rank holds at most; 0 takes as many as
    of a packed sequence, `batch.length` / `mesh.sequence`."""
    profile: str = ""
    """With `flex` or `auto`: a file of `penstock profile`, which says what groups cost and by which
    policies are compared; empty takes closed forms of an H200."""

    def __post_init__(self) -> None:
        choices = {"source": SOURCES, "dtype": DTYPES, "format": RECORD_FORMATS}
        choices |= {
            "packing": PACKINGS,
            "longer": LONGER,
            "policy": POLICIES,
            "groups": GROUP_NAMES,
        }
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                raise ShapeError(f"data.{name} is {value!r}", hint=nearest(str(value), list(known)))
        self._refuse_numbers()
        self._refuse_groups()
        self._refuse_paths()
        self._refuse_weights()
        self._refuse_unused()

    def _refuse_numbers(self) -> None:
        if not 0 <= self.held_out < 1:
            raise ShapeError(
                f"data.held_out is {self.held_out}", hint="give a share from 0 to below 1"
            )
        if self.limit_bytes < 0:
            raise ShapeError(
                f"data.limit_bytes is {self.limit_bytes}", hint="give a number of bytes, 0 for all"
            )
        if self.slice_tokens < 0 or (self.slice_tokens and self.policy not in CUTTING):
            raise ShapeError(
                f"data.slice_tokens is {self.slice_tokens} and data.policy is {self.policy!r}",
                hint='give 0, or a number of tokens with data.policy = "chunk" or "auto"',
            )
        if self.held_out and self.held_out_paths:
            raise ShapeError(
                f"data.held_out is {self.held_out}, but data.held_out_paths names documents too",
                hint="hold out a share or name the documents, not both",
            )

    def _refuse_groups(self) -> None:
        usual = DataSettings.__dataclass_fields__
        for name in ("groups", "group_ranks", "rank_tokens", "profile"):
            value = getattr(self, name)
            low = isinstance(value, int) and value < 0
            if low or (value != usual[name].default and self.policy not in GROUPING):
                raise ShapeError(
                    f"data.{name} is {value!r} and data.policy is {self.policy!r}",
                    hint=f'leave data.{name} out, or set data.policy to "flex" or "auto" and '
                    "give a value that it takes",
                )
        if self.group_ranks and self.groups != "static":
            raise ShapeError(
                f"data.group_ranks is {self.group_ranks}, but data.groups is {self.groups!r}",
                hint='set data.groups to "static", or leave data.group_ranks out: sizes of groups '
                "are planned",
            )

    def _refuse_paths(self) -> None:
        for name in ("paths", "held_out_paths"):
            if isinstance(getattr(self, name), str):
                raise ShapeError(f"data.{name} is one string", hint="give a list of paths")
        if self.source == "stdlib" and (self.paths or self.held_out_paths):
            raise ShapeError(
                f"data.source is 'stdlib', but paths are given: "
                f"{', '.join((*self.paths, *self.held_out_paths))}",
                hint="set data.source to 'text', 'jsonl', 'records' or 'tokens', or leave them out",
            )
        if self.source != "stdlib" and not self.paths:
            raise ShapeError(
                f"data.source is {self.source!r}, but data.paths is empty",
                hint="name files, folders or patterns in data.paths",
            )

    def _refuse_weights(self) -> None:
        if self.weights and len(self.weights) != len(self.paths):
            raise ShapeError(
                f"data.weights has {len(self.weights)} entries for {len(self.paths)} of data.paths",
                hint="give one weight for each entry of data.paths",
            )
        for weight in self.weights:
            if not (weight > 0 and math.isfinite(weight)):
                raise ShapeError(f"data.weights has {weight}", hint="give numbers above 0")

    def _refuse_unused(self) -> None:
        """Settings that would be passed over in silence."""
        records, usual = self.source in HOLD_RECORDS, DataSettings.__dataclass_fields__
        arrays, cut = self.source == "tokens", self.packing == "cut"
        unused = {
            "limit_bytes": (arrays, "data.source is 'tokens'", "arrays are taken as they are"),
            "end_token": (arrays, "data.source is 'tokens'", "arrays are taken as they are"),
            "format": (not records, f"data.source is {self.source!r}", "only records have one"),
            "chat_template": (not records, f"data.source is {self.source!r}", "no chat is there"),
            "longer": (cut, "data.packing is 'cut'", "there, documents are cut anyway"),
        }
        for name, (idle, why, reason) in unused.items():
            value = getattr(self, name)
            if idle and value != usual[name].default:
                raise ShapeError(
                    f"data.{name} is {value!r}, but {why}", hint=f"leave data.{name} out: {reason}"
                )
        try:
            date.fromisoformat(self.template_date)
        except ValueError:
            raise ShapeError(
                f"data.template_date is {self.template_date!r}", hint="give a date as 2024-07-26"
            ) from None
