"""Layout of the built-in model's embedding: a (256, 64, 64) array of maps of several resolutions.

Training and the ONNX graphs share these numbers; a change needs new training.
"""

FRAME = 1024  # side of the frame to which images are scaled and padded, in pixels
IMAGE_SIDE = 256  # side of the encoder's input after averaging, in pixels
SIDE = 64  # side of the embedding, in cells
CHANNELS = 256

HEADS = 8  # likeness heads
HEAD_WIDTH = 8
COSTS = 4  # kinds of edge cost, each with one value for the left and one for the upper neighbour
KERNELS = 4  # non-local kernels
KERNEL_WIDTH = 8
GUIDES = 4
WIDTHS = (24, 48, 80)  # channels for the decoder at sides of 64, 32 and 16 cells

# name, channels, side in cells; each takes channels * (side / 64) ** 2 of the 256 channels, in this order
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
FAR = 30.0  # above any path cost
ROUNDS = 3  # passes along rows and columns
SOURCES = 4  # maps spread by the kernels: box inside, earlier mask, reach of positive and of negative clicks
CONDITIONS = 2 * HEADS + 3 * COSTS + SOURCES * KERNELS + 4 + 4 + 3
SPOT_SIGMA = 0.8  # cells; radius around a click in which its look is averaged
BLOB_SIGMAS = (1.5, 10.0)
TOKENS = 4  # 0 the single answer, 1 to 3 the candidates
MASK_CLAMP = 8.0  # logits of an earlier mask are clipped here
