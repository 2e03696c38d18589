"""The host tier: memory that activations wait in while their device needs the room."""
