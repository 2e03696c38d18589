"""Pages whose commands are run: what a page shows is what a newcomer sees.

A fenced block marked `console` is a shell session: lines that start with `$ ` are typed, the lines
under them are what came back, words on stderr included. A block marked `text FILE` is the content
of a file that the reader is asked to save. `python scripts/write_shell_sessions.py` writes the
answers anew.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.core.ops import KINDS

ROOT = Path(__file__).parents[1]
PAGES = tuple(
    ROOT / page
    for page in (
        "docs/reference/cli.md",
        "docs/reference/combinations.md",
        "docs/reference/files.md",
        "docs/tutorial/first-steps.md",
        "docs/concepts/cell-costs.md",
        "docs/concepts/estimate.md",
        "docs/concepts/ffn-fusion.md",
        "docs/concepts/profile.md",
        "docs/concepts/plan.md",
        "docs/concepts/subllm.md",
        "docs/concepts/auto-plan.md",
        "docs/howto/lora.md",
        "README.md",
    )
)

_KINDS = re.compile(r"(?<=<!-- kinds -->\n).*?(?=<!-- end -->)", re.DOTALL)
_BLOCK = re.compile(r"^```(console|text (\S+))\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def rewritten(page: str) -> str:
    """The page with the output of every command as it is now."""
    rows = ["| kind | meaning |", "| --- | --- |", *(f"| {k} | {t} |" for k, t in KINDS.items())]
    page = _KINDS.sub(lambda _: "\n".join(rows) + "\n", page)
    with TemporaryDirectory() as folder:
        return _BLOCK.sub(lambda block: _renew(block, Path(folder)), page)


def _renew(block: re.Match[str], folder: Path) -> str:
    if block[2]:
        (folder / block[2]).write_text(block[3])
        return block[0]
    commands = [line for line in block[3].splitlines() if line.startswith("$ ")]
    answers = "".join(f"{command}\n{_answer(command[2:], folder)}" for command in commands)
    return f"```console\n{answers}```"


def _answer(command: str, folder: Path) -> str:
    """What a shell prints for one command, without spaces at the ends of lines."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={"PATH": path, "COLUMNS": "100", "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(rewritten(path.read_text()))
