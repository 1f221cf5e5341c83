"""Call the example's Triton with its own client, without BentoML (`make example NAME=ensemble OPEN=1`).

.venv/bin/python examples/ensemble/triton_client.py
"""

import argparse
import sys

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--grpc", metavar="HOST:PORT", default="127.0.0.1:8001", help="address of Triton")
options = parser.parse_args()

inputs = []
for name, numbers in {"INPUT0": [1, 2, 3, 4], "INPUT1": [4, 3, 2, 1]}.items():
    values = np.array([numbers], np.float32)  # a batch of one
    inputs.append(tritonclient.grpc.InferInput(name, list(values.shape), "FP32"))
    inputs[-1].set_data_from_numpy(values)
try:
    with tritonclient.grpc.InferenceServerClient(options.grpc) as triton:
        config = triton.get_model_config("add_sub").config
        print("add_sub:", [(tensor.name, list(tensor.dims)) for tensor in config.input], config.max_batch_size)
        print("ensemble:", triton.infer("ensemble", inputs).as_numpy("OUTPUT")[0].tolist())
except InferenceServerException as error:
    sys.exit(f"error: {options.grpc}: {error.message()}")
