"""Call the running example and print inputs and outputs.

.venv/bin/python examples/ensemble/client.py
"""

import argparse
import sys
from typing import Any

import requests

INPUTS: dict[str, list[float]] = {"input0": [1, 2, 3, 4], "input1": [4, 3, 2, 1]}

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--url", default="http://127.0.0.1:3000", help="URL of the service")
url = parser.parse_args().url


def ask(model: str, **inputs: list[float]) -> dict[str, Any]:
    """Return the outputs of a model, or the problem document of an error."""
    try:
        document: dict[str, Any] = requests.post(f"{url}/{model}", json=inputs, timeout=30).json()
    except requests.ConnectionError:
        sys.exit(f"error: cannot connect to {url}; start the example with `make example NAME=ensemble`")
    except requests.RequestException as error:
        sys.exit(f"error: {url}: {error}")
    return document


for name, numbers in INPUTS.items():
    print(name, numbers)
for model in ("add_sub", "ensemble"):
    for output, values in ask(model, **INPUTS).items():
        print(model, output, values)

# The product of 2e9 and 2e9 exceeds the second step's limit: the ensemble returns that step's error.
problem = ask("ensemble", input0=[2e9, 2, 3, 4], input1=[0, 0, 0, 0])
print(problem["status"], problem["detail"])
