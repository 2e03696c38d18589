"""The front door: picks the verb, runs it, and turns errors into sentences and exit codes.

    0    good
    1    findings: the answer is bad news
    2    misuse: the question cannot be answered
    130  interrupted

Only the module of the requested verb is imported: `penstock list` must not wait for the pictures.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import Annotated, Any

import typer

from penstock import __version__
from penstock.cli._completion import typed_words
from penstock.cli._output import emit, note
from penstock.errors import PenstockError
from penstock.run.process.exit_codes import INTERRUPTED, MISUSE

VERBS = (
    *("list", "show", "check", "simulate", "compare", "best", "estimate", "plan"),
    *("verify", "train", "launch", "export", "fuse", "unfuse", "data", "profile"),
    "bench",
)

THREADS = "OPENBLAS_NUM_THREADS"
LONGEST_COMPLAINT = 300
"""Characters of a message about a wrong command line."""

_UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""What typer raises for a wrong command line; its name is not among typer's public ones."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    if sys.stderr is None:  # closed by whoever started this, who wants to read nothing
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if sys.stdout is None:
        hint = "let it lead to a file, a pipe or /dev/null"
        return _complain("stdout is closed, so that an answer would be lost", hint, MISUSE)
    typed = typed_words()
    if typed is not None:
        return _run(typed)
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        with redirect_stdout(sys.stderr):
            return _run(["--help"]) or MISUSE
    return _run(words)


def _run(words: Sequence[str]) -> int:
    try:
        code = application(words)(words, prog_name="penstock", standalone_mode=False)
    except PenstockError as error:
        return _complain(error.message, error.hint, error.exit_code)
    except _UsageError as error:
        return _complain(_sentence(error), _where_to_look(error), MISUSE)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as end:  # typer leaves so when it has answered a shell
        return int(end.code or 0)
    return code or 0


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The commands: the one that `words` names, or all of them where it names none."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    first = next((word for word in words if not word.startswith("-")), "")
    with _without_threads():
        for verb in (first,) if first in VERBS else VERBS:
            import_module(f"penstock.cli.{verb}").register(app)
    return app


@contextmanager
def _without_threads() -> Iterator[None]:
    """Import numpy without the threads of its linear algebra, which nothing here uses.

    While they start they spin on every core for as long as a short command takes. Processes that
    are started later find the environment as it was.
    """
    if THREADS in os.environ:
        yield
        return
    os.environ[THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[THREADS]


def _print_version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:  # a shell that completes reads a line only
        emit(__version__)
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Pipeline schedules as data: generated, proven, simulated, drawn and run."""


def _complain(message: str, hint: str, code: int) -> int:
    note(f"error: {message}")
    if hint:
        note(f"hint: {hint}")
    return code


def _sentence(error: Any) -> str:
    """Typer's message in the manner of ours: without a capital and a full stop, and not longer
    than a few lines, whatever word it repeats."""
    message = str(error.format_message()).rstrip(".")
    if len(message) > LONGEST_COMPLAINT:
        message = f"{message[:LONGEST_COMPLAINT]}..."
    return message[:1].lower() + message[1:]


def _where_to_look(error: Any) -> str:
    path = error.ctx.command_path if error.ctx else "penstock"
    return f"`{path} --help` shows what it takes"
