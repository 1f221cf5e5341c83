"""Continue texts with a Hugging Face language model, and send each piece as it is generated."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer


class TritonPythonModel:
    """Decoupled model: it may send any number of responses to a request."""

    def initialize(self, _: dict[str, str]) -> None:
        """Load the language model."""
        name = os.environ.get("TEXT_GENERATION_MODEL") or "gpt2"
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.model = AutoModelForCausalLM.from_pretrained(name).to(
            "cuda" if torch.cuda.is_available() else "cpu"
        )
        self.threads = ThreadPoolExecutor(4)  # texts at a time; further requests wait

    def execute(self, requests: list[Any]) -> None:
        """Hand each request to a thread and return, so that Triton can pass the next ones."""
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy()[0] for tensor in request.inputs()}
            self.threads.submit(self._answer, inputs, request.get_response_sender())

    def _answer(self, inputs: dict[str, Any], sender: Any) -> None:
        """Send the continuation of a text in pieces."""

        def send(text: str, stream_end: bool = False) -> None:  # noqa: ARG001
            if text:
                output = pb_utils.Tensor("text_output", np.array([text.encode()], np.object_))
                sender.send(pb_utils.InferenceResponse([output]))

        streamer = TextStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
        streamer.on_finalized_text = send  # its own prints the text
        try:
            new_tokens, temperature = (
                int(inputs.get("max_new_tokens", 64)),
                float(inputs.get("temperature", 0)),
            )
            text = inputs["text_input"].decode()
            prompt = self.tokenizer(text, return_tensors="pt", return_token_type_ids=False).to(
                self.model.device
            )
            length, context = (
                prompt.input_ids.shape[1],
                getattr(self.model.config, "max_position_embeddings", math.inf),
            )
            if not 1 <= length <= context - new_tokens:
                raise ValueError(
                    f"expected 1 to {context} tokens with max_new_tokens, got {length} +"
                    f" {new_tokens}"
                )
            self.model.generate(
                **prompt,
                max_new_tokens=new_tokens,
                do_sample=temperature != 0,
                temperature=temperature or None,
                streamer=streamer,
                stopping_criteria=[lambda *_, **__: sender.is_cancelled()],  # the caller has gone
            )
        except Exception as error:
            # transformers raises ValueError for invalid options too. INVALID_ARG is HTTP 400; the
            # text says so as well, because a model that calls this one does not get the code.
            failure = pb_utils.TritonError(str(error))
            if isinstance(error, ValueError):
                failure = pb_utils.TritonError(
                    f"invalid request: {error}", pb_utils.TritonError.INVALID_ARG
                )
            sender.send(pb_utils.InferenceResponse(error=failure))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
