"""Timelines as one HTML page to explore."""
