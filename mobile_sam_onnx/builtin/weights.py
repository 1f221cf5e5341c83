"""Reads the stored weights: a safetensors file of float16 tensors, with nothing but NumPy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WEIGHTS = Path(__file__).with_name("weights.safetensors")
State = dict[str, NDArray[np.float32]]
_TYPES = {"F16": "<f2", "F32": "<f4"}


def load_weights(path: Path = WEIGHTS) -> State:
    """Tensor name to float32 array, as `build_encoder` and `build_decoder` take them.

    Raises `ValueError` for a file that is no safetensors file, or holds other types than float16 and float32.
    """
    content = path.read_bytes()
    header_size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or header_size > len(content) - 8:
        raise ValueError(f"{path} is not a whole safetensors file")
    try:
        header = json.loads(content[8 : 8 + header_size])
    except ValueError as error:
        raise ValueError(f"{path} has no readable safetensors header") from error
    body = memoryview(content)[8 + header_size :]
    state: State = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _TYPES:
            raise ValueError(f"tensor {name} of {path} is {entry['dtype']}, expected F16 or F32")
        start, end = entry["data_offsets"]
        values = np.frombuffer(body[start:end], _TYPES[entry["dtype"]])
        state[name] = values.reshape(entry["shape"]).astype(np.float32)
    return state
