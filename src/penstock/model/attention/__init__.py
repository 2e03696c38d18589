"""Attention of one slice to itself and to the slices before it, without joining them."""

from penstock.model.attention.attend import attend, replay
from penstock.model.attention.memory import KeyValueGradients, KeyValues

__all__ = ["KeyValueGradients", "KeyValues", "attend", "replay"]
