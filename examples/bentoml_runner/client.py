"""Segment the object at a point of a picture, with BentoML's client.

.venv/bin/python examples/bentoml_runner/client.py photo.jpg 320 240
"""

import sys
from pathlib import Path

import bentoml
from bentoml.exceptions import BentoMLException
from httpx import ConnectError

URL = "http://127.0.0.1:3000"

if len(sys.argv) != 4:
    sys.exit(__doc__)
try:
    click = {"input_image": Path(sys.argv[1]), "pos_coords": [[float(sys.argv[2]), float(sys.argv[3])]]}
    with bentoml.SyncHTTPClient(URL) as client:
        mask = client.segment(**click)
        client.segmented_image(**click).save("segmented_image.png")
except (BentoMLException, ConnectError, OSError, ValueError) as error:
    sys.exit(f"error: {error}")
print(f"{mask.sum()} of {mask.size} pixels; wrote segmented_image.png")
