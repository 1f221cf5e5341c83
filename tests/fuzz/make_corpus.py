"""Generator of the corpus: `python -m tests.fuzz.make_corpus`.

The files are defined in `odd_pngs.py`, `odd_jpegs.py`, `odd_others.py` and `odd_bodies.py`. They are committed because
Pillow's encoders change from release to release.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fuzz.body_parts import OddBody
from tests.fuzz.odd_bodies import odd_bodies
from tests.fuzz.odd_images import OddImage
from tests.fuzz.odd_jpegs import jpegs
from tests.fuzz.odd_others import others
from tests.fuzz.odd_pngs import pngs

CORPUS = Path(__file__).parent / "corpus"
IMAGES, BODIES = CORPUS / "images", CORPUS / "bodies"


def odd_images() -> dict[str, OddImage]:
    """Return all images by path in `IMAGES`."""
    return pngs() | jpegs() | others()


def main() -> None:
    """Replace all files."""
    shutil.rmtree(CORPUS, ignore_errors=True)
    odds: list[tuple[Path, dict[str, OddImage] | dict[str, OddBody]]] = [(IMAGES, odd_images()), (BODIES, odd_bodies())]
    for folder, files in odds:
        for name, odd in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(odd.data)
        print(f"{folder}: {len(files)} files, {sum(len(odd.data) for odd in files.values())} bytes")


if __name__ == "__main__":
    main()
