"""A causal language model of Hugging Face's `transformers`, and how it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from huggingface_hub import logging as hub_logging
from text_generation_pieces import Pieces
from text_generation_request import Asked, Refused
from text_generation_settings import AUTO, DEVICE, MODEL, Settings, Unusable

transformers.logging.set_verbosity_error()
hub_logging.set_verbosity_error()


def find(settings: Settings) -> tuple[Any, Any, torch.device]:
    """Configuration and tokenizer of the model, and where it is to run.

    Raises:
        Unusable: there is no such model or device, or it does not go on with texts.
    """
    count = torch.cuda.device_count()
    device = torch.device(("cuda" if count else "cpu") if settings.device == AUTO else settings.device)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise Unusable(f"{DEVICE}: expected one of the {count} GPUs that PyTorch finds, got {settings.device!r}")
    expected = f"{MODEL}: expected a causal language model's name at Hugging Face or its folder, got {settings.model!r}"
    try:
        # A model that brings code of its own is not run, and nobody is asked whether it may be.
        config = transformers.AutoConfig.from_pretrained(settings.model, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(settings.model, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise Unusable(f"{expected}: {str(error).splitlines()[0]}") from None
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise Unusable(f"{expected}, which is a {config.model_type}")
    return config, tokenizer, device


class Language:
    """A model and its tokenizer. Several threads may write at once."""

    def __init__(self, settings: Settings) -> None:
        """Load it.

        Raises:
            Unusable: as `find`, or its weights are not there, or do not fit.
        """
        config, self._tokenizer, self._device = find(settings)
        try:
            self._model = transformers.AutoModelForCausalLM.from_pretrained(
                settings.model, dtype=_dtype(settings, self._device), trust_remote_code=False
            ).to(self._device)
        except (OSError, ValueError, RuntimeError) as error:
            raise Unusable(f"{MODEL}: {settings.model!r} cannot be loaded: {str(error).splitlines()[0]}") from None
        # The first use may change the tokenizer's state, at which no other thread may be using it.
        self._tokenizer("a")
        self._context: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)

    def write(self, asked: Asked, send: Callable[[str], None], stop: Callable[[], bool]) -> None:
        """Go on with a text.

        Args:
            asked: the text, and how.
            send: takes each piece.
            stop: whether to end, asked before every token.

        Raises:
            Refused: the text has no token, or more than the model can go on with.
        """
        tokens = self._tokenizer(asked.text).input_ids
        if not tokens:
            raise Refused("text_input: expected a text of at least one token, got none")
        if self._context and len(tokens) + asked.max_new_tokens > self._context:
            raise Refused(
                f"text_input: expected at most {self._context - asked.max_new_tokens} tokens, which with "
                f"max_new_tokens {asked.max_new_tokens} are the model's {self._context}, got {len(tokens)}"
            )
        if stop():
            return
        prompt = torch.tensor([tokens], device=self._device)
        streamer = _Streamer(Pieces(self._text, tokens), send)
        # The likeliest token is taken; where there is a temperature, `_Noise` has its say before.
        self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            pad_token_id=0,
            max_new_tokens=asked.max_new_tokens,
            num_beams=1,
            do_sample=False,
            logits_processor=[_Noise(asked, self._device)] if asked.temperature else [],
            stopping_criteria=[_Stop(stop)],
            streamer=streamer,
        )

    def _text(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


class _Noise:
    """Makes the likeliest token one that is drawn, by numbers of this request alone (the Gumbel-max trick)."""

    def __init__(self, asked: Asked, device: torch.device) -> None:
        self._temperature = asked.temperature
        self._generator = torch.Generator(device).manual_seed(asked.seed)

    def __call__(self, _: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(scores).exponential_(generator=self._generator).log()
        return scores / self._temperature - noise


class _Stop:
    """Ends the text when nobody waits for it."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop

    def __call__(self, tokens: torch.Tensor, _: Any) -> torch.Tensor:
        return torch.full((len(tokens),), self._stop(), device=tokens.device)


class _Streamer:
    """Hands the text of new tokens on."""

    def __init__(self, pieces: Pieces, send: Callable[[str], None]) -> None:
        self._pieces, self._send = pieces, send
        self._prompt_came = False

    def put(self, tokens: torch.Tensor) -> None:
        """The prompt at first, then a token each time."""
        if self._prompt_came and (piece := self._pieces.add(int(tokens))):
            self._send(piece)
        self._prompt_came = True

    def end(self) -> None:
        """No token follows."""
        if piece := self._pieces.end():
            self._send(piece)


def _dtype(settings: Settings, device: torch.device) -> torch.dtype:
    if settings.dtype != AUTO:
        dtype: torch.dtype = getattr(torch, settings.dtype)
        return dtype
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
