"""Timelines as SVG pictures."""
