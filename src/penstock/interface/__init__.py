"""What the package offers beside the functions of its layers: pictures that show themselves."""
