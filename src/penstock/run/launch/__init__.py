"""Processes: starting the ranks of a run, and ending them."""
