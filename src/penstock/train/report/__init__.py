"""The report at the end of a run."""
