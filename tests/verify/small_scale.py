"""What is compared on a GPU, with sequences and on devices that every machine has time for."""

from dataclasses import replace

from penstock.verify.scale import CUDA

SMALL = replace(
    CUDA,
    device="cpu",
    layers=4,
    length=72,
    slice_length=9,
    documents=((0,), (0, 15, 42), (0, 1, 2, 60), (0, 18, 36)),
)
