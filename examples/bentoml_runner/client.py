"""Segment the object at a point of a picture, with BentoML's client.

.venv/bin/python examples/bentoml_runner/client.py photo.jpg 320 240
"""

import argparse
import sys
from pathlib import Path

import bentoml
from bentoml.exceptions import BentoMLException
from httpx import HTTPError

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("picture", type=Path)
parser.add_argument("x", type=float, help="point on the object, pixels from the left")
parser.add_argument("y", type=float, help="pixels from the top")
parser.add_argument("--url", default="http://127.0.0.1:3000", help="URL of the service")
options = parser.parse_args()
click = {"input_image": options.picture, "pos_coords": [[options.x, options.y]]}
try:
    # By default BentoML's client waits 30 s for a service that is not ready.
    with bentoml.SyncHTTPClient(options.url, server_ready_timeout=0) as client:
        mask = client.segment(**click)
        client.segmented_image(**click).save("segmented_image.png")
except (BentoMLException, HTTPError, OSError, ValueError) as error:
    sys.exit(f"error: {error or type(error).__name__} (service: {options.url})")
print(f"{mask.sum()} of {mask.size} pixels; wrote segmented_image.png")
