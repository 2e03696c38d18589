"""What the repository holds: nothing that it says it ignores."""

import subprocess
from pathlib import Path


def is_repository(root: Path) -> bool:
    """Whether a project is under version control, and git is there to be asked."""
    try:
        return _git(root, "rev-parse", "--is-inside-work-tree").strip() == "true"
    except (OSError, subprocess.CalledProcessError):
        return False


def ignored(root: Path) -> list[str]:
    """Tracked files that .gitignore names: outputs of a run or a tool, added by force or by
    accident, which every later run changes."""
    paths = _git(root, "ls-files", "--cached", "--ignored", "--exclude-standard").splitlines()
    return [f"{path} is tracked, but .gitignore names it: git rm --cached {path}" for path in paths]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout
