"""Training: configuration, the loop, metrics and checkpoints."""
