"""Text generation with a causal language model of Hugging Face `transformers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from huggingface_hub import logging as hub_logging
from text_generation_pieces import Pieces
from text_generation_request import GenerationRequest, RequestError
from text_generation_settings import AUTO, DEVICE, MODEL, Settings, SettingsError

transformers.logging.set_verbosity_error()
hub_logging.set_verbosity_error()


def find(settings: Settings) -> tuple[Any, Any, torch.device]:
    """Return configuration and tokenizer of the model, and its device.

    Raises:
        SettingsError: the model or device does not exist, or the model is not a causal language model.
    """
    count = torch.cuda.device_count()
    device = torch.device(("cuda" if count else "cpu") if settings.device == AUTO else settings.device)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise SettingsError(f"{DEVICE}: expected one of the {count} GPUs found by PyTorch, got {settings.device!r}")
    expected = f"{MODEL}: expected the name or folder of a causal language model, got {settings.model!r}"
    try:
        # Models with custom code are rejected.
        config = transformers.AutoConfig.from_pretrained(settings.model, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(settings.model, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{expected}: {str(error).splitlines()[0]}") from None
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise SettingsError(f"{expected}, which is a {config.model_type}")
    return config, tokenizer, device


class Language:
    """A thread-safe language model with its tokenizer."""

    def __init__(self, settings: Settings) -> None:
        """Load the model.

        Raises:
            SettingsError: as `find`, or the weights are missing or do not fit.
        """
        config, self._tokenizer, self._device = find(settings)
        try:
            self._model = transformers.AutoModelForCausalLM.from_pretrained(
                settings.model, dtype=_dtype(settings, self._device), trust_remote_code=False
            ).to(self._device)
        except (OSError, ValueError, RuntimeError) as error:
            raise SettingsError(f"{MODEL}: {settings.model!r} cannot be loaded: {str(error).splitlines()[0]}") from None
        # The first call may change the tokenizer's state, which is not thread-safe.
        self._tokenizer("a")
        self._context: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)

    def write(self, request: GenerationRequest, send: Callable[[str], None], stop: Callable[[], bool]) -> None:
        """Continue a text.

        Args:
            request: the text and its parameters.
            send: called with each piece.
            stop: called before every token; True stops the text.

        Raises:
            RequestError: the text has no tokens, or more than the model's context allows.
        """
        tokens = self._tokenizer(request.text).input_ids
        if not tokens:
            raise RequestError("text_input: expected a text of at least one token, got none")
        if self._context and len(tokens) + request.max_new_tokens > self._context:
            raise RequestError(
                f"text_input: expected at most {self._context - request.max_new_tokens} tokens, which with "
                f"max_new_tokens {request.max_new_tokens} are the model's {self._context}, got {len(tokens)}"
            )
        if stop():
            return
        prompt = torch.tensor([tokens], device=self._device)
        # Greedy decoding; with a temperature, `_noise` turns it into sampling.
        self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            pad_token_id=0,
            max_new_tokens=request.max_new_tokens,
            num_beams=1,
            do_sample=False,
            logits_processor=[_noise(request, self._device)] if request.temperature else [],
            stopping_criteria=[lambda texts, *_: torch.full((len(texts),), stop(), device=texts.device)],
            streamer=Pieces(self._text, send),
        )

    def _text(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


def _noise(request: GenerationRequest, device: torch.device) -> Callable[..., torch.Tensor]:
    """Return a processor of logits that makes greedy decoding sample with a generator of its own (Gumbel-max trick)."""
    generator = torch.Generator(device).manual_seed(request.seed)

    def add_noise(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(scores).exponential_(generator=generator).log()
        return scores / request.temperature - noise

    return add_noise


def _dtype(settings: Settings, device: torch.device) -> torch.dtype:
    if settings.dtype != AUTO:
        dtype: torch.dtype = getattr(torch, settings.dtype)
        return dtype
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
