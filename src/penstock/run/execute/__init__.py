"""Running a device's lane: one loop, and the work of each kind of op."""
