"""Weights known by name. A further set gets its constant here and its name in `weights.Preparer.prepare`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A published file."""

    url: str
    size: int
    """Bytes."""
    sha256: str
    """In hex; its first digits, where no more of it is published."""


OFFICIAL = Source(
    url="https://raw.githubusercontent.com/ChaoningZhang/MobileSAM/"
    "34bbbfdface3c18e5221aa7de6032d7220c6c6a1/weights/mobile_sam.pt",
    size=40_728_226,
    sha256="6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f",
)

BUILTIN = Path(__file__).parent / "builtin" / "weights.safetensors"
