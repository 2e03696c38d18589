"""Orders that move activations to the host, or recompute ahead."""
