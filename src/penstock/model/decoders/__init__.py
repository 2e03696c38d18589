"""Decoders of `transformers` that have no record here, as stages of their own modules."""
