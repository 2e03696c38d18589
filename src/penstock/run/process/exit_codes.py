"""Exit codes of a run: what a script or a scheduler may rely on."""

GOOD = 0
FAILED = 1
"""Something went wrong; the first cause is on standard error."""
MISUSE = 2
"""The run was never started: a wrong configuration or command line."""
SAVED = 75
"""Told to stop, it saved and left: start it again and it goes on. It is EX_TEMPFAIL of sysexits."""
INTERRUPTED = 130
"""Interrupted from the keyboard."""

DONE = (GOOD, SAVED)
"""Codes with which a rank leaves of its own accord."""
