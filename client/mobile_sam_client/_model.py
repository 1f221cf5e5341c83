"""Sizes of the model's inputs and outputs, and labels of points."""

FRAME_SIDE = 1024
"""Longest side, in pixels, of an image as the model sees it."""
MASK_SIDE = 256
"""Width and height of low-resolution masks."""
MASK_SHAPE = (MASK_SIDE, MASK_SIDE)

NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT = 0, 1, 2, 3
"""Labels of points in requests."""
PADDING_POINT = -1
"""Label of the point that the decoder expects in place of a box."""
