"""`penstock show`: a schedule as a picture, or as a file in another format."""

import typer

from penstock.cli._flat import flat
from penstock.cli._output import emit, has_color, width
from penstock.cli._pictures import Exports, Width, destinations, write_pictures
from penstock.cli._request import AsJson, PriceFlags, Request, Target, resolve
from penstock.draw import terminal
from penstock.sim import simulate


def register(app: typer.Typer) -> None:
    app.command("show")(flat(show))


def show(
    target: Target,
    request: Request,
    prices: PriceFlags,
    exports: Exports,
    columns: Width = None,
    as_json: AsJson = False,
) -> None:
    """Draw a schedule's timeline in the terminal, or write it to files.

    --json prints the schedule in the JSON format that check, show and simulate read.
    """
    files = destinations(exports, as_json=as_json)
    cost = prices.cost()
    timelines = [simulate(resolve(target, request, cost), cost)]
    if files:
        write_pictures(files, timelines)
    else:
        emit(terminal.render(timelines, width=columns or width(), color=has_color()))
