"""Let the running example continue a text, and print it while it is being generated.

.venv/bin/python examples/text_generation/client.py Once upon a time
"""

import argparse
import sys

import requests

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("text", nargs="*", default=["Once", "upon", "a", "time"])
parser.add_argument("--url", default="http://127.0.0.1:3000", help="URL of the service")
options = parser.parse_args()
request = {"text_input": " ".join(options.text), "temperature": 0.7}
with requests.post(f"{options.url}/generate", json=request, stream=True, timeout=300) as response:
    if not response.ok:
        sys.exit(f"error: {response.status_code}: {response.text}")
    print(request["text_input"], end="", flush=True)
    for piece in response.iter_content(None, decode_unicode=True):
        print(piece, end="", flush=True)
print()
