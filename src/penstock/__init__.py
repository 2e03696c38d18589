"""Penstock trains long-context language models with pipeline parallelism.

A schedule is data: generated, proven, priced, drawn and run.
"""

__version__ = "0.1.0"
