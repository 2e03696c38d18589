"""Programs made ready to run: plans, and lanes of calls."""
