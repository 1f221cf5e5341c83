"""What can befall a running service, and figures of how it bore it."""
