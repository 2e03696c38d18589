"""What the copies of a device share."""

import torch

from penstock.run.host.leaving import LeavingMemory
from penstock.run.host.pool import HostPool


class HostTier:
    """Where activations wait, and the memory that they leave behind."""

    def __init__(self, device: torch.device) -> None:
        self.pool = HostPool(device)
        self.leaving = LeavingMemory()

    def reset(self) -> None:
        """Begin a step."""
        self.pool.reset()
        self.leaving.reset()
