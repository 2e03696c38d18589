"""Starts a schedule: writes its file, its page and its test, all of which work at once.

`python scripts/new_schedule.py my-schedule` copies the first example of CONTRIBUTING.md under
another name: a microbatch goes all the way forward and back before the next one starts. Its order,
its claims and its text are true; change them one after the other, and
`python scripts/check_schedule.py my-schedule` says what does not agree yet.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
EXAMPLE = "one-by-one"
STEPS = {
    "1. The file": "src/penstock/schedules/{module}.py",
    "2. The page": "docs/schedules/{name}.md",
    "3. The test": "tests/schedules/test_{module}.py",
}
"""What the page calls a step, and the file that it makes."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def block(page: str, step: str) -> str:
    """The fenced block that follows a step's bold heading."""
    found = re.search(rf"\*\*{re.escape(step)}\*\*.*?^(```+)\w+\n(.*?)^\1$", page, re.S | re.M)
    if not found:
        sys.exit(f"{PAGE.name} has no block for {step!r}")
    return found[2]


def module_of(name: str) -> str:
    """The name of the file: `my-schedule` is in my_schedule.py."""
    return name.replace("-", "_")


def files(name: str) -> dict[Path, str]:
    """Path and text of everything that a new schedule starts with."""
    page = PAGE.read_text()
    return {
        ROOT / path.format(name=name, module=module_of(name)): renamed(block(page, step), name)
        for step, path in STEPS.items()
    }


def renamed(text: str, name: str) -> str:
    """The example under another name."""
    return text.replace(EXAMPLE, name).replace(module_of(EXAMPLE), module_of(name))


def refusal(name: str) -> str:
    """Why there can be no new schedule of this name; empty where there can be."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is no name: give small letters, digits and hyphens, a letter first"
    known = [path.relative_to(ROOT) for path in files(name) if path.exists()]
    return f"{known[0]} exists already: give another name" if known else ""


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("give one name: make new-schedule NAME=my-schedule")
    reason = refusal(arguments[0])
    if reason:
        sys.exit(reason)
    for path, text in files(arguments[0]).items():
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
