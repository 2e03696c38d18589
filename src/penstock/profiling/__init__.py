"""What a machine does with a model: measured, written down, compared, and used for estimates."""
