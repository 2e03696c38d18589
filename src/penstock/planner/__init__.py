"""Which layout and schedule for a model on a cluster: bounds for all, simulations for few."""
