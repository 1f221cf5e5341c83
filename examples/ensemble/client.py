"""Asks the running example, and prints what went in and what came out.

.venv/bin/python examples/ensemble/client.py
"""

import sys
from typing import Any

import requests

URL = "http://127.0.0.1:3000"
INPUTS: dict[str, list[float]] = {"input0": [1, 2, 3, 4], "input1": [4, 3, 2, 1]}


def ask(model: str, **inputs: list[float]) -> dict[str, Any]:
    """The outputs of a model; of a refusal, the problem document."""
    try:
        answer = requests.post(f"{URL}/{model}", json=inputs, timeout=30)
    except requests.ConnectionError:
        sys.exit(f"error: nothing listens at {URL}: `make example NAME=ensemble` first")
    document: dict[str, Any] = answer.json()
    return document


for name, numbers in INPUTS.items():
    print(name, numbers)
for model in ("add_sub", "ensemble"):
    for output, values in ask(model, **INPUTS).items():
        print(model, output, values)

# The product of 2e9 and 2e9 is more than the second step gives: the ensemble hands its refusal on.
refused = ask("ensemble", input0=[2e9, 2, 3, 4], input1=[0, 0, 0, 0])
print(refused["status"], refused["detail"])
