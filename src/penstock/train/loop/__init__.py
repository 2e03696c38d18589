"""The training loop: set up, resume, step, stop, finish."""
