"""A training step, whole: engine, gradients brought together, optimizer, state."""
