"""Kinds of layers as records: what each says of itself to everybody else, without torch."""
