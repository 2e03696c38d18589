"""Pricing a schedule: when every op runs, what every device holds, what links carry."""

from penstock.sim.engine import simulate
from penstock.sim.timeline import Curve, Span, Timeline, Transfers

__all__ = ["Curve", "Span", "Timeline", "Transfers", "simulate"]
