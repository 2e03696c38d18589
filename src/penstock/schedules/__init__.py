"""Every schedule that Penstock knows.

To add one: a file in this folder and a page in docs/schedules; there is no list to keep. What a
file decorates with `@schedule` is registered. Files that start with an underscore hold no schedule,
and what generators share is in `generators/`. Orders that are searched for, with a simulation or a
solver, have their file in the layer above (penstock.search), which is looked through as well.
"""

import os
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError, nearest
from penstock.schedules._registry import Case, Claim, Need, Option, Spec, schedule

__all__ = [
    "READING_ORDER",
    "Case",
    "Claim",
    "Need",
    "Option",
    "Spec",
    "build",
    "find",
    "modules",
    "names_a_file",
    "registry",
    "schedule",
]

READING_ORDER = (
    "gpipe",
    "one_f_one_b",
    "eager_1f1b",
    "one_f_one_b_head",
    "kfkb",
    "interleaved",
    "breadth_first",
    "chronos",
    "chronos_ahead",
    "zero_bubble",
    "zb_auto",
    "zb_v",
    "zb_v_auto",
    "v_fixed",
    "v_auto",
    "one_f_one_b_v",
    "interleaved_zb",
    "gis",
    "dualpipev",
    "stp",
    "terapipe",
    "sppo",
    "seq1f1b",
    "seq1f1b_i",
    "seq1f1b_zb",
    "chunkflow",
    "slimpipe",
    "slimpipe_exchange",
    "slimpipe_vocab",
    "interlaced",
    "vocab_1f1b",
    "vocab_seq1f1b",
    "vocab_v_half",
    "helixpipe",
    "adaptis",
    "pipeoffload",
    "optpipe",
)
"""Files in the order in which tables list their schedules, from the simplest to the searched ones.
A file that is not named here follows, by its name."""


_LONGEST_SHOWN = 60


@cache
def modules() -> tuple[str, ...]:
    """Dotted names of the files that register a schedule, in the order of reading."""
    package = Path(__file__).parents[1]
    files = [*package.glob("schedules/[!_]*.py"), *package.glob("search/**/[!_]*.py")]
    found = [path for path in files if "\n@schedule(" in path.read_text(encoding="utf-8")]
    place = {name: number for number, name in enumerate(READING_ORDER)}
    found.sort(key=lambda path: (place.get(path.stem, len(place)), path.stem))
    parts = (path.relative_to(package.parent).with_suffix("").parts for path in found)
    return tuple(".".join(names) for names in parts)


@cache
def registry() -> Mapping[str, Spec]:
    """Name to record, in the order of the files."""
    loaded = (import_module(module) for module in modules())
    found = [value for module in loaded for value in vars(module).values()]
    specs = [spec for spec in found if isinstance(spec, Spec)]
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ShapeError(
                f"two schedules are called {name!r}", hint="give every schedule its own name"
            )
    return dict(zip(names, specs))


def find(name: str) -> Spec:
    """The record of a schedule, or an error with the nearest name."""
    specs = registry()
    if name not in specs:
        called = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
        raise ShapeError(f"no schedule is called {called!r}", hint=nearest(called, list(specs)))
    return specs[name]


def names_a_file(target: str) -> bool:
    """Whether a schedule is asked for by its file: a path, or a name of something that exists.

    >>> names_a_file("gpipe"), names_a_file("mine.txt"), names_a_file("x" * 300)
    (False, True, False)
    """
    # os.path knows nothing of names that are too long for a file; Path raises
    return target not in registry() and ("/" in target or "." in target or os.path.exists(target))


def build(
    name: str,
    *,
    devices: int,
    microbatches: int,
    chunks: int | None = None,
    slices: int | None = None,
    options: Mapping[str, Any] | None = None,
    prices: Mapping[str, Fraction] | None = None,
) -> Schedule:
    """Generate a registered schedule; `prices` matter to those whose order depends on them.

    >>> build("seq1f1b", devices=4, microbatches=4, slices=2).lane(3)[:3]
    [Op(kind='F', stage=3, mb=0, slice=0), Op(kind='F', stage=3, mb=0, slice=1), \
Op(kind='B', stage=3, mb=0, slice=1)]
    """
    spec = find(name)
    return spec.build(spec.case(devices, microbatches, chunks, slices, options, prices))
