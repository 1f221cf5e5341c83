"""Write an untrained small GPT-2 and a byte-level ASCII tokenizer into a folder.

python -m tests.e2e.examples.tiny_gpt2 FOLDER
"""

import string
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

CONTEXT = 2048


def make(folder: Path) -> None:
    """Write the model. It has no end-of-text token, so it always generates the requested number
    of tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = "the quick brown fox jumps over the lazy dog again and again"
    tokenizer.train_from_iterator([words, string.printable], trainers.BpeTrainer(vocab_size=200))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    wrapped.save_pretrained(folder)
    torch.manual_seed(7)
    shape = {"n_positions": CONTEXT, "n_embd": 32, "n_layer": 8, "n_head": 2}
    # Larger initial weights than usual, so that the output depends on the prompt.
    config = GPT2Config(
        vocab_size=len(wrapped),
        **shape,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.3,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
