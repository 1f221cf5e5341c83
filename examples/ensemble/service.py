"""BentoML service for an ensemble of two models: POST /ensemble, and /add_sub for its first step.

make example NAME=ensemble
"""

from pathlib import Path
from typing import Any

import bentoml
import numpy as np
from bentoml.exceptions import InvalidArgument
from tritonclient.http import InferInput
from tritonclient.utils import InferenceServerException

from examples import embedded

# add_sub completes its configuration in `auto_complete_config`.
triton_runner = embedded.runner(Path(__file__).with_name("model_repository"), auto_complete=True)
svc = bentoml.legacy.Service("ensemble", runners=[triton_runner])
embedded.prepare(svc)

NUMBERS = bentoml.io.JSON.from_sample({"INPUT0": [1, 2, 3, 4], "INPUT1": [4, 3, 2, 1]})


async def infer(model: str, numbers: Any) -> dict[str, list[float]]:
    """Run a model on INPUT0 and INPUT1 and return its outputs by name."""
    inputs = []
    try:
        for name in ("INPUT0", "INPUT1"):
            values = np.array(numbers[name], np.float32)
            inputs.append(InferInput(name, values.shape, "FP32"))
            inputs[-1].set_data_from_numpy(values)
        result = await triton_runner.infer(model_name=model, inputs=inputs)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{name}: expected four numbers: {error!r}") from None
    except InferenceServerException as error:
        if error.status() != "400":  # not the caller's fault
            raise
        raise InvalidArgument(error.message()) from None
    return {
        output["name"]: result.as_numpy(output["name"]).tolist()
        for output in result.get_response()["outputs"]
    }


@svc.api(input=NUMBERS, output=bentoml.io.JSON())
async def ensemble(numbers: dict[str, Any]) -> dict[str, list[float]]:
    """Compute (INPUT0 + INPUT1) * (INPUT0 - INPUT1) in one request to Triton."""
    return await infer("ensemble", numbers)


@svc.api(input=NUMBERS, output=bentoml.io.JSON())
async def add_sub(numbers: dict[str, Any]) -> dict[str, list[float]]:
    """Run only the first step: sum and difference."""
    return await infer("add_sub", numbers)
