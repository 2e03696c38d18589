"""Looking at a step that is run: times, CPU and memory of its ops."""
