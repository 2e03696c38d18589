"""Ranks that talk: the mesh, transfers between devices, collectives."""
