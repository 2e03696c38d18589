"""The model: layers that know slices, and stages made of them."""
