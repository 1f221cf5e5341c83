"""Let the running example continue a text, and print it while it is being generated.

.venv/bin/python examples/text_generation/client.py Once upon a time
"""

import argparse
import json
import sys

import requests

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("text", nargs="*", default=["Once", "upon", "a", "time"])
parser.add_argument("--url", default="http://127.0.0.1:3000", help="URL of the service")
options = parser.parse_args()
text = " ".join(options.text)
request = {"text_input": text, "max_new_tokens": 64, "temperature": 0.7, "seed": 1}
try:
    with requests.post(f"{options.url}/generate", json=request, stream=True, timeout=300) as response:
        print(text, end="", flush=True)
        for line in response.iter_lines():
            piece = json.loads(line)
            if "text_output" not in piece and "done" not in piece:  # a problem document, alone or in the last line
                sys.exit(f"\nerror: {piece.get('problem', piece)['detail']}")
            print(piece.get("text_output", "\n"), end="", flush=True)
except requests.ConnectionError:
    sys.exit(f"error: cannot connect to {options.url}; start the example with `make example NAME=text_generation`")
except requests.RequestException as error:
    sys.exit(f"error: {options.url}: {error}")
