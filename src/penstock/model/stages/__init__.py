"""Stages: pieces of a model that a device works with."""
