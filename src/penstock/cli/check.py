"""`penstock check`: a proof, or the findings that refute a schedule."""

from collections import Counter
from typing import Any

import typer

from penstock.check import Report, check
from penstock.cli._flat import flat
from penstock.cli._output import emit, emit_json
from penstock.cli._record import plain
from penstock.cli._request import AsJson, Prices, Request, Target, resolve
from penstock.core.schedule import Schedule
from penstock.draw.words import counted, number, size_words
from penstock.lower import needed_slots
from penstock.sim import simulate

FINDINGS = 1


def register(app: typer.Typer) -> None:
    app.command("check")(flat(check_one))


def check_one(target: Target, request: Request, prices: Prices, as_json: AsJson = False) -> None:
    """Prove a schedule, or say which op breaks which rule. Exit code 1 is a refuted one."""
