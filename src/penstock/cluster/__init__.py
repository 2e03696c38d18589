"""What a training run can be given: GPUs, the links between them, and machines; without torch."""
