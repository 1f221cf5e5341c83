"""Writes a GPT-2 of two layers with untrained weights, and a byte-level tokenizer that knows ASCII, into a folder.

python -m tests.e2e.examples.tiny_gpt2 FOLDER                           the model
python -m tests.e2e.examples.tiny_gpt2 FOLDER "a text" 20               how transformers itself goes on with that
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

CONTEXT = 2048


def make(folder: Path) -> None:
    """Write the model; it never ends a text by itself, and so writes as many tokens as it is asked for."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = "the quick brown fox jumps over the lazy dog again and again"
    tokenizer.train_from_iterator([words, string.printable], trainers.BpeTrainer(vocab_size=200))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    wrapped.save_pretrained(folder)
    torch.manual_seed(7)
    shape = {"n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 2}
    # Larger weights than a training begins with: what comes next depends on what came before.
    config = GPT2Config(vocab_size=len(wrapped), **shape, bos_token_id=None, eos_token_id=None, initializer_range=0.3)
    GPT2LMHeadModel(config).save_pretrained(folder)


def go_on(folder: Path, text: str, tokens: int) -> str:
    """The likeliest tokens after a text."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer(text, return_tensors="pt")
    written = model.generate(**prompt, max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return str(tokenizer.decode(written[0, prompt.input_ids.shape[1] :]))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        make(Path(sys.argv[1]))
    else:
        print(go_on(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
