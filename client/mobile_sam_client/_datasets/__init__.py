"""Detection data sets: their formats, and the masks of their boxes and points."""
