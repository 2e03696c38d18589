"""What a step takes when its documents are packed, cut into slices or shared by groups of ranks."""
