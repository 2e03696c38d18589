"""The verifier: schedules run by real processes, compared with a plain model in one process."""
