"""Measurements of the runtime that need torch."""
