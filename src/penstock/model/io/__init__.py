"""Weights in and out: initial values, safetensors, Hugging Face folders."""
