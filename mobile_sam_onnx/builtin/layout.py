"""How the built-in model's embedding is divided: one (256, 64, 64) array that holds maps of several resolutions.

Training and the ONNX graphs both read these numbers; change one and the weights must be trained anew.
"""

from __future__ import annotations

FRAME = 1024  # pixels a side of the frame that images are scaled and padded to
IMAGE_SIDE = 256  # pixels a side of what the encoder works on
SIDE = 64  # cells a side of the embedding
CHANNELS = 256

HEADS = 8  # likeness heads
HEAD_WIDTH = 8
COSTS = 4  # kinds of edge cost, each with a value towards the left and one towards the upper neighbour
KERNELS = 4  # non-local kernels
KERNEL_WIDTH = 8
GUIDES = 4
WIDTHS = (24, 48, 80)  # channels the decoder is given at 64, 32 and 16 cells a side

# name, channels, cells a side; each takes channels * (side / 64) ** 2 of the 256 channels, in this order
LAYOUT: tuple[tuple[str, int, int], ...] = (
    ("likeness", HEADS * HEAD_WIDTH, 64),
    ("costs", 2 * COSTS, 64),
    ("fine", WIDTHS[0], 64),
    ("middle", WIDTHS[1], 32),
    ("coarse", WIDTHS[2], 16),
    ("kernels", KERNELS * KERNEL_WIDTH, 32),
    ("guide", GUIDES, 128),
    ("valid", 1, 64),
)

# conditioning of the decoder
FAR = 30.0  # a path cost that no path reaches
ROUNDS = 3  # passes along rows and columns
SOURCES = 4  # what the kernels spread: box inside, earlier mask, reach of positive and of negative clicks
CONDITIONS = 2 * HEADS + 3 * COSTS + SOURCES * KERNELS + 4 + 4 + 3
SPOT_SIGMA = 0.8  # cells; how far about a click its look is read
BLOB_SIGMAS = (1.5, 10.0)
TOKENS = 4  # 0 the single answer, 1 to 3 the candidates
MASK_CLAMP = 8.0  # logits of an earlier mask beyond this say no more
