"""Let the running example continue a text, and print it while it is being generated.

.venv/bin/python examples/text_generation/client.py "Once upon a time"
"""

import json
import sys

import requests

text = " ".join(sys.argv[1:]) or "Once upon a time"
print(text, end="", flush=True)
request = {"text_input": text, "max_new_tokens": 64, "temperature": 0.7, "seed": 1}
with requests.post("http://127.0.0.1:3000/generate", json=request, stream=True, timeout=300) as response:
    for line in response.iter_lines():
        piece = json.loads(line)
        if "text_output" not in piece and "done" not in piece:  # a problem document, alone or in the last line
            sys.exit(f"\nerror: {piece.get('problem', piece)['detail']}")
        print(piece.get("text_output", "\n"), end="", flush=True)
