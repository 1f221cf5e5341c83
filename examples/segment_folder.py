"""Segment the object in the middle of every JPEG in a folder and make one contact sheet.

.venv/bin/python examples/segment_folder.py photos sheet.jpg
"""

import sys
from pathlib import Path

from PIL import Image, ImageOps

from mobile_sam_client import Client

files = sorted(Path(sys.argv[1]).glob("*.jpg")) if len(sys.argv) == 3 else []
if not files:
    sys.exit(__doc__)
sheet = Image.new("RGB", (4 * 320, -(-len(files) // 4) * 240))
with Client() as client:
    for number, file in enumerate(files):
        photo = client.embed(file)
        found = client.segment(photo, pos_coords=[[photo.width / 2, photo.height / 2]])
        if found.image:
            sheet.paste(ImageOps.pad(found.image, (320, 240)), (number % 4 * 320, number // 4 * 240))
sheet.save(sys.argv[2])
