"""Call the running example and print inputs and outputs.

.venv/bin/python examples/ensemble/client.py
"""

import sys
from typing import Any

import requests

URL = "http://127.0.0.1:3000"
INPUTS: dict[str, list[float]] = {"input0": [1, 2, 3, 4], "input1": [4, 3, 2, 1]}


def ask(model: str, **inputs: list[float]) -> dict[str, Any]:
    """Return the outputs of a model, or the problem document of an error."""
    try:
        answer = requests.post(f"{URL}/{model}", json=inputs, timeout=30)
    except requests.ConnectionError:
        sys.exit(f"error: cannot connect to {URL}; start the example with `make example NAME=ensemble`")
    document: dict[str, Any] = answer.json()
    return document


for name, numbers in INPUTS.items():
    print(name, numbers)
for model in ("add_sub", "ensemble"):
    for output, values in ask(model, **INPUTS).items():
        print(model, output, values)

# The product of 2e9 and 2e9 exceeds the second step's limit: the ensemble returns that step's error.
problem = ask("ensemble", input0=[2e9, 2, 3, 4], input1=[0, 0, 0, 0])
print(problem["status"], problem["detail"])
