"""Measuring a machine: kernels one by one, steps as they are, messages between ranks."""
