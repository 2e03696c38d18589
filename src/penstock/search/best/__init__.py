"""The best schedule for a request, against a lower bound."""
