"""What one process knows of its run: its place, its parent, the store, its exit codes."""
