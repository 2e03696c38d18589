"""Cut, placement and order searched together."""
