"""The plan of a run, chosen at its start for the machine that it finds."""
