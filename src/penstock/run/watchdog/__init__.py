"""Watching over ranks: heartbeats, hangs, and what went wrong first."""
