"""The best order there is, by a solver."""
