"""Attention of one slice to itself and to the slices before it, without joining them."""
