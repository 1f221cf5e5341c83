"""Replacement of `text_generation_language.py` for tests without PyTorch; it generates random numbers slowly."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from text_generation_request import GenerationRequest, RequestError
from text_generation_settings import Settings

CONTEXT = 2048


def find(_: Settings) -> None:
    pass


class Language:
    def __init__(self, _: Settings) -> None:
        pass

    def write(self, request: GenerationRequest, send: Callable[[str], None], stop: Callable[[], bool]) -> None:
        count, limit = len(request.text.split()), CONTEXT - request.max_new_tokens
        if count > limit:
            raise RequestError(f"text_input: expected at most {limit} tokens, which are the model's, got {count}")
        generator = random.Random(request.seed if request.temperature else 0)
        for _ in range(request.max_new_tokens):
            if stop():
                return
            time.sleep(0.01)
            send(f" {generator.randrange(1000)}")
