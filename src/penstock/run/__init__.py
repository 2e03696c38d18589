"""The runtime: programs executed by real processes."""
