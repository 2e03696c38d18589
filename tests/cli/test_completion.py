"""What a shell is offered: the environment is that of the scripts that typer installs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Penstock
from penstock.cli.main import VERBS
from penstock.schedules import find, registry

Offered = Callable[[str], list[str]]


@pytest.fixture
def offered(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """Words that bash is offered for the last word of a line, which may be empty."""

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))  # as bash joins them
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        answer = penstock("")
        assert (answer.code, answer.err) == (0, "")
        return answer.out.split()

    return ask


def test_all_verbs_are_offered(offered: Offered) -> None:
    assert tuple(offered("penstock ")) == VERBS
    assert offered("penstock b") == ["best", "bench"]
    assert offered("penstock bench ") == ["core", "run", "gpu"]


def test_flags_of_a_verb_are_offered(offered: Offered) -> None:
    assert offered("penstock show --h") == ["--hop", "--html", "--help"]
    assert "--install-completion" in offered("penstock --")


@pytest.mark.parametrize("verb", ["list", "show", "check", "simulate", "compare", "verify"])
def test_names_of_schedules_are_offered(offered: Offered, verb: str) -> None:
    assert offered(f"penstock {verb} ") == list(registry())
    wanted = [name for name in registry() if name.startswith("zb-")]
    assert offered(f"penstock {verb} zb-") == wanted


def test_for_a_file_the_shell_is_left_to_itself(offered: Offered) -> None:
    assert offered("penstock show ./mine") == []
    assert offered("penstock train con") == []


def test_options_of_the_named_schedules_are_offered(offered: Offered) -> None:
    names = [f"{option.name}=" for option in find("chunkflow").options]
    assert offered("penstock show chunkflow -p 4 -m 8 -o ") == names
    assert offered("penstock compare kfkb chunkflow -o gr") == ["group=", "groups="]
    assert offered("penstock show gpipe -o ") == []


@pytest.mark.torch
def test_settings_are_offered(offered: Offered) -> None:
    assert "run.steps=" in offered("penstock train mine.toml --set run.")
    assert {"run.steps=", "pipeline.slices="} <= set(offered("penstock train mine.toml --set "))


@pytest.mark.parametrize("line", ["penstock --version ", "penstock train --schema "])
def test_a_line_that_is_completed_is_not_run(offered: Offered, line: str) -> None:
    assert set(offered(line)) <= set(VERBS)


@pytest.mark.processes
@pytest.mark.parametrize("line", ["penstock ", "penstock show zb", "penstock train x --set run."])
def test_completion_does_not_load_torch(line: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numba'] = None\n"
        "from penstock.cli.main import main; sys.exit(main())"
    )
    request = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **request, "_PENSTOCK_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


@pytest.mark.processes
def test_bash_completes_with_the_script_that_is_installed(tmp_path: Path) -> None:
    program = f"{sys.executable} -m penstock"
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    session = f"""
        {program} --install-completion > /dev/null
        . ~/.bash_completions/penstock.sh
        COMP_WORDS=(penstock show seq1f1b-) COMP_CWORD=2
        _penstock_completion penstock
        echo "${{COMPREPLY[*]}}"
    """
    done = subprocess.run(
        ["bash", "-c", session], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["seq1f1b-i", "seq1f1b-zb"], done.stderr
    assert ".bash_completions/penstock.sh" in (tmp_path / ".bashrc").read_text()
