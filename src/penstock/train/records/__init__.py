"""What a run writes while it goes on: metrics, logs, the console."""
