"""What a shell offers when the Tab key is pressed.

The shell runs `penstock` with the line so far in the environment and reads what may follow from
stdout. So nothing but that may be printed, nothing slow may be imported (torch takes seconds), and
what goes wrong while somebody is still typing is nobody's error: then nothing is offered.
"""

import os

from penstock.schedules import registry
from penstock.transform import CHANGES

REQUEST = "_PENSTOCK_COMPLETE"
"""Set by the scripts that `--install-completion` installs."""
LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Where bash, and where other shells, put the line so far."""

Offers = list[tuple[str, str]]
"""Words that may follow, each with its meaning; bash shows the words alone."""


def typed_words() -> list[str] | None:
    """The words of the line that a shell asks about; None where none asks."""
    if REQUEST not in os.environ:
        return None
    line = next((os.environ[name] for name in LINES if name in os.environ), "")
    return line.split()[1:]


def complete_names(incomplete: str) -> Offers:
    """Schedules; where none begins like this, the shell offers files."""
    titles = {spec.name: spec.title for spec in registry().values()}
    return _beginning(titles, incomplete)


def complete_options(incomplete: str) -> Offers:
    """Options of the schedules that the line names."""
    specs = [registry()[word] for word in typed_words() or () if word in registry()]
    texts = {f"{option.name}=": option.text for spec in specs for option in spec.options}
    return _beginning(texts, incomplete)


def complete_changes(incomplete: str) -> Offers:
    """Changes that any schedule can be combined with."""
    return _beginning({name: change.text for name, change in CHANGES.items()}, incomplete)


def complete_settings(incomplete: str) -> Offers:
    """Keys of a configuration."""
    try:
        from penstock.train.config.schema import schema  # deferred: needs pydantic
    except ModuleNotFoundError:
        return []
    keys = {
        f"{section}.{key}=": str(takes.get("description", ""))
        for section, table in schema()["properties"].items()
        for key, takes in table.get("properties", {}).items()
    }
    return _beginning(keys, incomplete)


def _beginning(offers: dict[str, str], incomplete: str) -> Offers:
    return [(word, meaning) for word, meaning in offers.items() if word.startswith(incomplete)]
