"""Segment the object in the middle of every JPEG in a folder and make one contact sheet.

.venv/bin/python examples/segment_folder.py photos sheet.jpg
"""

import argparse
import sys
from pathlib import Path

from PIL import Image, ImageOps

from mobile_sam_client import Client, MobileSamError

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("folder", type=Path, help="folder with files *.jpg")
parser.add_argument("sheet", type=Path, help="JPEG file to write")
parser.add_argument("--url", default="http://127.0.0.1:3000", help="URL of the service")
options = parser.parse_args()
files = sorted(options.folder.glob("*.jpg"))
if not files:
    sys.exit(f"error: no file *.jpg in {options.folder}")
sheet = Image.new("RGB", (4 * 320, -(-len(files) // 4) * 240))
try:
    with Client(options.url) as client:
        for number, file in enumerate(files):
            photo = client.embed(file)
            found = client.segment(photo, pos_coords=[[photo.width / 2, photo.height / 2]])
            if found.image:
                sheet.paste(ImageOps.pad(found.image, (320, 240)), (number % 4 * 320, number // 4 * 240))
    sheet.save(options.sheet)
except (MobileSamError, OSError) as error:
    sys.exit(f"error: {error}")
