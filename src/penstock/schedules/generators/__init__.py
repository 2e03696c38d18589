"""What several schedules share: placements, blocks, list orders."""
