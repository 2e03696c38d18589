"""Prints, after a run, how often the checker and the explorer agreed on mutants."""

from collections import Counter

import pytest

from .tally import table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add up the counts that the tests of the small world recorded, on whatever process."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "tally":
                counts.update({(kind, column): count for kind, column, count in value})
    if counts:
        terminalreporter.section("mutants of all registered schedules")
        for line in table(counts):
            terminalreporter.write_line(line)
