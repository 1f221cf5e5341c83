"""Write an untrained small GPT-2 and a byte-level ASCII tokenizer into a folder.

python -m tests.e2e.examples.tiny_gpt2 FOLDER                           writes the model
python -m tests.e2e.examples.tiny_gpt2 FOLDER "a text" 20               continuation of the text by transformers itself
"""

import string
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

CONTEXT = 2048


def make(folder: Path) -> None:
    """Write the model. It has no end-of-text token, so it always generates the requested number of tokens."""
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
    config = GPT2Config(vocab_size=len(wrapped), **shape, bos_token_id=None, eos_token_id=None, initializer_range=0.3)
    GPT2LMHeadModel(config).save_pretrained(folder)


def continue_text(folder: Path, text: str, tokens: int) -> str:
    """Return the greedy continuation of a text."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer(text, return_tensors="pt")
    written = model.generate(**prompt, max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return str(tokenizer.decode(written[0, prompt.input_ids.shape[1] :]))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        make(Path(sys.argv[1]))
    else:
        print(continue_text(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
