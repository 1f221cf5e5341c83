"""BentoML service for a language model from BentoML's model store, with adaptive batching and
without Triton.

make env-text; TEXT_GENERATION_MODEL=gpt2 make example NAME=model_store
"""

# No `from __future__ import annotations`: BentoML evaluates the annotations, which must not be
# strings.

import bentoml
from transformers import AutoModelForCausalLM, AutoTokenizer

NEW_TOKENS = 32


@bentoml.service(traffic={"timeout": 60})
class Generator:
    """Continues texts, several callers' in one batch."""

    stored = bentoml.models.BentoModel("text_generation:latest")

    def __init__(self) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(self.stored.path, padding_side="left")
        self._tokenizer.pad_token = (
            self._tokenizer.eos_token or self._tokenizer.convert_ids_to_tokens(0)
        )
        self._model = AutoModelForCausalLM.from_pretrained(self.stored.path)

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=10_000)
    def generate(self, texts: list[str]) -> list[str]:
        """Return each text with its continuation."""
        batch = self._tokenizer(
            texts, return_tensors="pt", padding=True, return_token_type_ids=False
        )
        pad = self._tokenizer.pad_token_id
        tokens = self._model.generate(
            **batch, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=pad
        )
        new = self._tokenizer.batch_decode(
            tokens[:, batch.input_ids.shape[1] :], skip_special_tokens=True
        )
        return [text + continuation for text, continuation in zip(texts, new, strict=True)]


svc = Generator
