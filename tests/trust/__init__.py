"""Trust in the checker: a second opinion that shares no code with it, and seeded mistakes."""
