"""Measurements of the running service; `make bench` runs them."""
