"""Model descriptions without torch: sizes, parameters, Hugging Face families."""
