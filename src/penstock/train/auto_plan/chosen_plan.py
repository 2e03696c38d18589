"""The plan that was chosen, as a file in the run's folder, so that a run that goes on keeps it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import FormatError, PenstockError
from penstock.files import save_text
from penstock.files.json_object import read_object
from penstock.train.config.load import loads
from penstock.train.config.save import tables
from penstock.train.config.settings import Settings
from penstock.train.config.toml_text import written

PLAN_FILE, PROFILE_FILE = "plan.json", "profile.json"
FORMAT, VERSION = "penstock chosen plan", 1
CHOSEN_KEYS = {
    "batch": ("rows", "microbatches"),
    "pipeline": (
        *("schedule", "devices", "chunks", "slices", "layers", "recompute", "vocabulary"),
        "offload",
    ),
    "mesh": ("tensor", "sequence", "ring", "replicas", "shard"),
}
"""Keys of a configuration that a plan fills in."""


@dataclass(frozen=True)
class ChosenPlan:
    """A plan with what it was chosen for, and why."""

    asked: dict[str, Any]
    """What it follows from, as PlanRequest records it."""
    machine: dict[str, Any]
    """The machine that it was chosen on."""
    keys: dict[str, dict[str, Any]]
    """Section to key to value."""
    words: str
    """What was chosen."""
    why: list[str]
    profile: str
    """The file that times were taken from."""
    seconds: float
    """Of a step, predicted."""
    memory: list[dict[str, int]]
    """Bytes of one rank of each device by class, predicted."""
    because: str = ""
    """Why another plan of this run was given up; empty for the first one."""

    def applied_to(self, settings: Settings) -> Settings:
        """The settings with the plan written out, as if somebody had written it by hand."""
        found = tables(settings)
        for section, keys in self.keys.items():
            found[section] = {**found[section], **keys}
        found["plan"] = {**found["plan"], "auto": False, "profile": self.profile}
        try:
            return loads(written(found))
        except PenstockError as error:
            raise FormatError(
                f"{PLAN_FILE} does not fit the configuration: {error.message}",
                hint=f"delete {PLAN_FILE} in the run's folder, and the plan is chosen again",
            ) from None

    @property
    def lines(self) -> list[str]:
        """What a person is told."""
        given_up = [f"plan: chosen again, because {self.because}"] if self.because else []
        return [*given_up, f"plan: {self.words}", *(f"plan: - {each}" for each in self.why)]

    def text(self) -> str:
        """The plan as a file has it."""
        return json.dumps({"format": FORMAT, "version": VERSION} | asdict(self), indent=1) + "\n"


def save_plan(plan: ChosenPlan, folder: Path) -> None:
    """Write it into the folder of its run."""
    save_text(folder / PLAN_FILE, plan.text())


def read_plan(folder: Path) -> ChosenPlan | None:
    """The plan of a run's folder; None where it has none. A file that is none is refused."""
    path = folder / PLAN_FILE
    if not path.exists():
        return None
    return plan_from(read_object(path, f"delete {path}, and the plan is chosen again"), str(path))


def plan_from(record: Mapping[str, Any], path: str) -> ChosenPlan:
    """The plan that a file says."""
    hint = f"delete {path}, and the plan is chosen again"
    if record.get("format") != FORMAT or record.get("version") != VERSION:
        raise FormatError(f"{path!r} is not a plan of this version", hint=hint)
    given = {key: value for key, value in record.items() if key not in ("format", "version")}
    kinds = {"asked": dict, "machine": dict, "keys": dict, "why": list, "memory": list}
    whole = given.keys() == {*ChosenPlan.__dataclass_fields__} and all(
        isinstance(given[key], kind) for key, kind in kinds.items()
    )
    known = whole and all(
        isinstance(keys, dict) and {*keys} <= {*CHOSEN_KEYS.get(section, ())}
        for section, keys in given["keys"].items()
    )
    if not known:
        raise FormatError(f"{path!r} lacks a part of a plan, or has another", hint=hint)
    return ChosenPlan(**given)


def plan_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was, in words.

    >>> plan_differences({"ranks": 2, "device": "cpu"}, {"ranks": 4, "device": "cpu"})
    ['ranks was 2 and is 4']
    """
    names = [*before, *(name for name in now if name not in before)]
    return [
        f"{name} was {_short(before.get(name))} and is {_short(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _short(value: Any) -> str:
    text = "nothing" if value in (None, "", {}) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
