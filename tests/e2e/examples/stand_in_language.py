"""Takes the place of `text_generation_language.py` where there is no PyTorch: goes on with numbers, at its leisure."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from text_generation_request import Asked, Refused
from text_generation_settings import Settings

CONTEXT = 2048


def find(_: Settings) -> None:
    pass


class Language:
    def __init__(self, _: Settings) -> None:
        pass

    def write(self, asked: Asked, send: Callable[[str], None], stop: Callable[[], bool]) -> None:
        count, most = len(asked.text.split()), CONTEXT - asked.max_new_tokens
        if count > most:
            raise Refused(f"text_input: expected at most {most} tokens, which are the model's, got {count}")
        drawn = random.Random(asked.seed if asked.temperature else 0)
        for _ in range(asked.max_new_tokens):
            if stop():
                return
            time.sleep(0.001)
            send(f" {drawn.randrange(1000)}")
