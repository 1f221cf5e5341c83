"""Import a language model into BentoML's model store, unless the store has one.

TEXT_GENERATION_MODEL=gpt2 python -m examples.model_store.prepare
"""

import os
import sys

import bentoml
from bentoml.exceptions import NotFound
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME = "text_generation"

if __name__ == "__main__":
    try:
        stored = bentoml.models.get(NAME)
    except NotFound:
        source = os.environ.get("TEXT_GENERATION_MODEL") or "gpt2"
        try:
            tokenizer, model = (
                AutoTokenizer.from_pretrained(source),
                AutoModelForCausalLM.from_pretrained(source),
            )
        except (OSError, ValueError) as error:
            sys.exit(f"error: TEXT_GENERATION_MODEL={source}: {error}")
        with bentoml.models.create(NAME, metadata={"source": source}) as stored:
            tokenizer.save_pretrained(stored.path)
            model.save_pretrained(stored.path)
    print(f"model {stored.tag}")
