"""Who chooses the plan of the next steps: nobody, the network, or a solver."""
