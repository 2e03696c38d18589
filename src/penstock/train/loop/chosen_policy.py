"""The data policy that was chosen, as a file in the run's folder, so that a run that goes on keeps
it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import FormatError, PenstockError
from penstock.files import save_text
from penstock.files.json_object import read_object
from penstock.train.auto_plan.chosen_plan import plan_differences
from penstock.train.config.load import loads
from penstock.train.config.save import tables
from penstock.train.config.settings import Settings
from penstock.train.config.toml_text import written

POLICY_FILE = "policy.json"
FORMAT, VERSION = "penstock chosen policy", 1
POLICY_KEYS = {
    "data": ("policy", "slice_tokens", "groups", "group_ranks", "rank_tokens", "profile"),
    "pipeline": ("options",),
}
"""Keys of a configuration that a choice fills in."""
ASKED_SECTIONS = ("model", "data", "batch", "pipeline", "mesh")
"""Sections that a choice follows from."""


@dataclass(frozen=True)
class ChosenPolicy:
    """A policy with what it was chosen for, and why."""

    asked: dict[str, Any]
    """What it follows from."""
    keys: dict[str, dict[str, Any]]
    """Section to key to value."""
    words: str
    """What was chosen, and what it is expected to gain."""
    why: list[str]
    """What was compared."""
    because: str = ""
    """Why another policy of this run was given up; empty for the first one."""

    def applied_to(self, settings: Settings) -> Settings:
        """The settings with the choice written out, as if somebody had written it by hand."""
        found = tables(settings)
        for section, keys in self.keys.items():
            found[section] = {**found[section], **keys}
        try:
            return loads(written(found))
        except PenstockError as error:
            raise FormatError(
                f"{POLICY_FILE} does not fit the configuration: {error.message}",
                hint=f"delete {POLICY_FILE} in the run's folder, and the policy is chosen again",
            ) from None

    @property
    def lines(self) -> list[str]:
        """What a person is told."""
        given_up = [f"policy: chosen again, because {self.because}"] if self.because else []
        return [*given_up, f"policy: {self.words}", *(f"policy: - {each}" for each in self.why)]

    def text(self) -> str:
        """The choice as a file has it."""
        return json.dumps({"format": FORMAT, "version": VERSION} | asdict(self), indent=1) + "\n"


def chosen_keys(settings: Settings) -> dict[str, dict[str, Any]]:
    """The keys that a choice fills in, as settings have them."""
    found = tables(settings)
    return {section: {key: found[section][key] for key in keys} for section, keys in _SECTIONS}


_SECTIONS = tuple(POLICY_KEYS.items())


def asked_of(settings: Settings, ranks: int) -> dict[str, str]:
    """All that a choice follows from beside the machine, as a file has it."""
    found = tables(settings)
    keys = {
        f"{section}.{key}": str(value)
        for section in ASKED_SECTIONS
        for key, value in found[section].items()
    }
    return {"ranks": str(ranks), **keys, "plan.memory": str(settings.plan.memory)}


def save_policy(policy: ChosenPolicy, folder: Path) -> None:
    """Write it into the folder of its run."""
    save_text(folder / POLICY_FILE, policy.text())


def kept_policy(folder: Path, asked: Mapping[str, str]) -> tuple[ChosenPolicy | None, str]:
    """The policy of an earlier start, or why there is none that serves."""
    path = folder / POLICY_FILE
    if not path.exists():
        return None, ""
    hint = f"delete {path}, and the policy is chosen again"
    found = policy_from(read_object(path, hint), str(path))
    changed = plan_differences(found.asked, asked)
    return (None, ", ".join(changed)) if changed else (found, "")


def policy_from(record: Mapping[str, Any], path: str) -> ChosenPolicy:
    """The choice that a file says."""
    hint = f"delete {path}, and the policy is chosen again"
    if record.get("format") != FORMAT or record.get("version") != VERSION:
        raise FormatError(f"{path!r} is not a chosen policy of this version", hint=hint)
    given = {key: value for key, value in record.items() if key not in ("format", "version")}
    kinds = {"asked": dict, "keys": dict, "words": str, "why": list, "because": str}
    whole = given.keys() == kinds.keys() and all(
        isinstance(given[key], kind) for key, kind in kinds.items()
    )
    known = whole and all(
        isinstance(keys, dict) and {*keys} <= {*POLICY_KEYS.get(section, ())}
        for section, keys in given["keys"].items()
    )
    if not known:
        raise FormatError(f"{path!r} lacks a part of a chosen policy, or has another", hint=hint)
    return ChosenPolicy(**given)
