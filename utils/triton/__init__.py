"""Triton: installation, models, health and the client side of inference."""
