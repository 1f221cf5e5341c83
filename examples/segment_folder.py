"""Segment the object in the middle of every JPEG in a folder and make one contact sheet.

.venv/bin/python examples/segment_folder.py photos sheet.jpg [http://127.0.0.1:3000]
"""

import sys
from pathlib import Path

from PIL import Image, ImageOps

from mobile_sam_client import Client, MobileSamError

files = sorted(Path(sys.argv[1]).glob("*.jpg")) if len(sys.argv) in {3, 4} else []
sheet = Image.new("RGB", (4 * 320, -(-len(files) // 4) * 240)) if files else sys.exit(__doc__)
try:
    with Client(*sys.argv[3:]) as client:
        for number, file in enumerate(files):
            found = client.segment(
                photo := client.embed(file), pos_coords=[[photo.width / 2, photo.height / 2]]
            )
            tile = ImageOps.pad(found.image or Image.open(file), (320, 240))
            sheet.paste(tile, (number % 4 * 320, number // 4 * 240))
    sheet.save(sys.argv[2])
except MobileSamError as error:
    sys.exit(f"error: {error}")
