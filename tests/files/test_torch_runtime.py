"""The page about PyTorch's runtime: its commands are run with its script, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/howto/torch-runtime.md"
LIMIT = 240.0
"""Seconds in which both commands are over, on a machine that is busy with others."""


@pytest.mark.torch
@pytest.mark.processes
@pytest.mark.matrix
def test_the_commands_of_the_page_give_the_loss_and_gradients_of_one_process(
    tmp_path: Path,
) -> None:
    text = PAGE.read_text()
    (commands,) = re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)
    for name, content in re.findall(r"^```python (\S+)\n(.*?)^```$", text, re.M | re.S):
        (tmp_path / name).write_text(content)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"loss \d\.\d+, equal to that of one process, and so are the gradients\n", done.stdout
    )
