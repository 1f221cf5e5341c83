"""Call the running example and print inputs and outputs.

.venv/bin/python examples/ensemble/client.py
"""

import argparse

import requests

INPUTS = {"INPUT0": [1, 2, 3, 4], "INPUT1": [4, 3, 2, 1]}

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--url", default="http://127.0.0.1:3000", help="URL of the service")
url = parser.parse_args().url

print("inputs", INPUTS)
for model in ("add_sub", "ensemble"):
    print(model, requests.post(f"{url}/{model}", json=INPUTS, timeout=30).json())

# The product of 2e9 and 2e9 exceeds the second step's limit: the ensemble returns that step's
# error.
refused = requests.post(
    f"{url}/ensemble", json={"INPUT0": [2e9, 2, 3, 4], "INPUT1": [0, 0, 0, 0]}, timeout=30
)
print(refused.status_code, refused.json())
