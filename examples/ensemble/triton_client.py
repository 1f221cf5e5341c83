"""Call the example's Triton with its own client, without BentoML (`make example NAME=ensemble
OPEN=1`).

.venv/bin/python examples/ensemble/triton_client.py
"""

import argparse
import sys

import numpy as np
import tritonclient.http
from tritonclient.utils import InferenceServerException

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument(
    "--url", metavar="HOST:PORT", default="127.0.0.1:8000", help="address of Triton"
)
options = parser.parse_args()

inputs = []
for name, numbers in {"INPUT0": [1, 2, 3, 4], "INPUT1": [4, 3, 2, 1]}.items():
    values = np.array(numbers, np.float32)
    inputs.append(tritonclient.http.InferInput(name, values.shape, "FP32"))
    inputs[-1].set_data_from_numpy(values)
try:
    with tritonclient.http.InferenceServerClient(options.url) as triton:
        for model, outputs in {"add_sub": ["OUTPUT0", "OUTPUT1"], "ensemble": ["OUTPUT"]}.items():
            result = triton.infer(model, inputs)
            print(model, {output: result.as_numpy(output).tolist() for output in outputs})
except (InferenceServerException, OSError) as error:
    sys.exit(f"error: {options.url}: {error}")
