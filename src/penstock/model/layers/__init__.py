"""Layers of a decoder, with their backwards written out."""
