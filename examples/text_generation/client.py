"""Asks the running example to go on with a text, and prints it as it is being written.

.venv/bin/python examples/text_generation/client.py "Once upon a time"
"""

import json
import sys

import requests

text = " ".join(sys.argv[1:]) or "Once upon a time"
print(text, end="", flush=True)
request = {"text_input": text, "max_new_tokens": 64, "temperature": 0.7, "seed": 1}
with requests.post("http://127.0.0.1:3000/generate", json=request, stream=True, timeout=300) as answer:
    for line in answer.iter_lines():
        said = json.loads(line)
        if "text_output" not in said and "done" not in said:  # a problem, as the whole answer or as its last line
            sys.exit(f"\nerror: {said.get('problem', said)['detail']}")
        print(said.get("text_output", "\n"), end="", flush=True)
