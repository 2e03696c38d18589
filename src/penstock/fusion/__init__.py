"""FFN Fusion: MLPs that hardly depend on each other read the same input, as one wider MLP."""
