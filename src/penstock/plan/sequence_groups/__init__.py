"""Groups of ranks of unequal sizes, and the sequences that each of them works on."""
