"""Validation of requests. Needs neither Triton nor a model."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

MAX_CHARACTERS = 100_000
MAX_NEW_TOKENS, DEFAULT_NEW_TOKENS = 1024, 64
MAX_TEMPERATURE, DEFAULT_TEMPERATURE = 2.0, 1.0
MAX_SEED = 2**32 - 1


class RequestError(ValueError):
    """Invalid request; the message has the form `name: expected ..., got ...`."""


@dataclass(frozen=True)
class GenerationRequest:
    """A text to continue, with parameters."""

    text: str
    max_new_tokens: int
    temperature: float
    """0: greedy decoding; 1: the model's probabilities."""
    seed: int

    @classmethod
    def of(cls, values: Mapping[str, npt.NDArray[Any]]) -> GenerationRequest:
        """Parse the given inputs, by name; each has shape (1,).

        Raises:
            RequestError: a value is invalid.
        """
        return cls(
            _text(values["text_input"]),
            int(_number(values, "max_new_tokens", (1, MAX_NEW_TOKENS), DEFAULT_NEW_TOKENS)),
            float(_number(values, "temperature", (0, MAX_TEMPERATURE), DEFAULT_TEMPERATURE)),
            int(_number(values, "seed", (0, MAX_SEED), secrets.randbelow(MAX_SEED + 1))),
        )


def _text(value: npt.NDArray[Any]) -> str:
    encoded: bytes = value[0]
    try:
        text = encoded.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"text_input: expected UTF-8, got byte {encoded[error.start]:#04x} at {error.start}"
        ) from None
    if not 1 <= len(text) <= MAX_CHARACTERS:
        raise RequestError(f"text_input: expected 1 to {MAX_CHARACTERS} characters, got {len(text)}")
    return text


def _number(values: Mapping[str, npt.NDArray[Any]], name: str, bounds: tuple[float, float], default: float) -> Any:
    """Return a number within inclusive bounds, or the default if missing."""
    value = values.get(name)
    if value is None:
        return default
    if not bounds[0] <= value[0] <= bounds[1]:
        raise RequestError(f"{name}: expected {bounds[0]:g} to {bounds[1]:.10g}, got {value[0]:.10g}")
    return value[0]
