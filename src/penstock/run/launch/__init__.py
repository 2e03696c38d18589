"""Processes: starting the ranks of a run, meeting, and ending them."""
