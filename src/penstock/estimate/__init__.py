"""What a layout costs on a cluster: seconds of a step, and bytes of each GPU; without torch."""
