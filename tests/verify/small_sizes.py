"""Requests that are small, for tests in which many things meet.

A trial costs what its ops cost. `penstock verify` prefers 8 microbatches and 4 slices, and so does
one trial of every schedule in `make test`; of half as many, a quarter of the ops, the others ask
for nothing that is not in them.
"""

from penstock.verify.cases import CaseSizes

SMALL = CaseSizes(
    microbatches=(4, 8, 16, 2, 6, 12, 3, 5, 7, 1),
    slices=(2, 4, 8, 3, 1),
)
