"""Roboflow's SDK: runs calls of its client, one per line of standard input, and prints a line with
each result.

It runs in the SDK's environment: `sdk.py URL KEY`. A call is
`{"transport": "header", "method": ..., "path": ..., ...}`.
"""

import asyncio
import base64
import json
import sys
import warnings
from typing import Any

from inference_sdk import InferenceConfiguration, InferenceHTTPClient

url, key = sys.argv[1:]
warnings.simplefilter("ignore")


def run(method: str, path: str, transport: str | None, **arguments: Any) -> Any:
    """Return the result of a call, or the error's words."""
    client = InferenceHTTPClient(url, api_key=key)
    if transport:
        client.configure(InferenceConfiguration(api_key_transport=transport))
    try:
        answer = getattr(client, method)(path, **arguments)
        if asyncio.iscoroutine(answer):
            answer = asyncio.run(answer)
    except Exception as error:
        return {"error": str(error)}
    return {"archive": base64.b64encode(answer).decode()} if isinstance(answer, bytes) else answer


for line in sys.stdin:
    print(json.dumps(run(**json.loads(line))), flush=True)
