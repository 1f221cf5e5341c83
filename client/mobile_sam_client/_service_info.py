"""What a service says about itself: weights, engine, loaded versions and limits."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Weights:
    """Origin of the model's weights."""

    name: str
    sha256: str = field(repr=False)
    trained: bool
    note: str = field(repr=False)
    """Remark on the weights for the user, possibly empty."""


@dataclass(frozen=True)
class Engine:
    """Runtimes and precisions of the two networks, such as `onnxruntime f32`."""

    encoder: str
    decoder: str


@dataclass(frozen=True)
class Loaded:
    """A loaded version of the model."""

    version: int
    weights: Weights
    engine: Engine
    squashes: bool
    """True if these weights see an image scaled to a square, without its shape."""
    prompts: tuple[str, ...]
    """Prompts that the weights accept: `points`, `boxes`, `masks`."""


@dataclass(frozen=True)
class Info:
    """Version, weights, engine and limits of the service."""

    version: str
    weights: Weights | None
    """None if not yet known; every result has it."""
    engine: Engine | None
    """None if not yet known; every result has it."""
    key_needed: bool
    max_body_bytes: int
    """Maximum size of a request; base64 makes an image a third larger than its file."""
    max_image_pixels: int
    """Maximum width times height."""
    max_objects: int
    """Maximum number of prompts per `segment_many`."""
    model_versions: tuple[int, ...]
    """Loaded versions of the model, the last being the default; empty while the service starts."""
    loaded: tuple[Loaded, ...] = ()
    """The versions in `model_versions` with their weights and engines."""
    encode_s: float | None = None
    """Seconds that the encoder takes for an image, the median of recent runs; None if not yet
    known."""
    local_decoding: bool = False
    """True if the service offers its decoder, for `Client(local=True)`."""
