"""Settings of the orchestrator's models: their defaults, and what overrides them.

A parameter in a model's config.pbtxt overrides a default, and the environment variable
`MOBILE_SAM_` + NAME overrides both, for the settings in `FROM_ENVIRONMENT`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

ENVIRONMENT_PREFIX = "MOBILE_SAM_"
KNOWN_IMAGES = "known images"
"""`answers` of a model that encodes no images."""
GPU_NETWORKS = "gpu"
"""`networks` where the encoder scales images, and the decoder makes masks."""
FROM_ENVIRONMENT = {
    "max_image_pixels",
    "max_answer_bytes",
    "embedding_cache_dir",
    "embedding_cache_bytes",
    "redis_url",
}
MINIMUM = {
    "max_image_pixels": 1,
    "max_answer_bytes": 1,
    "decoder_batch": 1,
    "embedding_cache_bytes": 0,
    "mask_memory_bytes": 1,
}
"""Least value of each setting that is a whole number."""


@dataclass(frozen=True)
class OrchestratorSettings:
    """Settings of one of the orchestrator's models."""

    max_image_pixels: int = 25_000_000
    """Largest width times height of an image."""
    max_answer_bytes: int = 160 * 2**20
    """Largest answer; `json` with a `cutout` of 25 megapixels takes 150 MB."""
    decoder_batch: int = 8
    """Prompts in one run of the decoder. More do not fit a processor's caches; 64 suit a GPU."""
    embedding_cache_dir: str = "~/.cache/mobile-sam-triton/embeddings"
    embedding_cache_bytes: int = 2 * 2**30
    """Size of the embedding cache on disk; 0: keep none."""
    redis_url: str = ""
    """Redis where replicas share embeddings; empty: none."""
    answers: str = ""
    """`KNOWN_IMAGES` for a model that leaves new images to another one."""
    nice: int = 0
    """Niceness of the model's processes; clicks on cached images have 0."""
    encoder_engine: str = "onnxruntime f32"
    """Engine of the encoder, as answers name it. The service sets it to suit the machine."""
    decoder_engine: str = "onnxruntime f32"
    own_decoder_engine: str = ""
    """Engine of the decoder if it runs in the model's own process; empty: as `decoder_engine`."""
    networks: str = ""
    """`GPU_NETWORKS`, or empty for networks that leave the work on pixels to the orchestrator. The
    service sets this and the next one to suit the machine."""
    mask_memory_bytes: int = 2**30
    """Memory of a decoder that makes masks for those of one run."""

    @classmethod
    def from_parameters(
        cls, parameters: Mapping[str, str], environment: Mapping[str, str] = os.environ
    ) -> "OrchestratorSettings":
        """Return the settings of a model.

        Args:
            parameters: parameters in the model's config.pbtxt; others than settings are ignored.
            environment: environment variables; empty ones count as left out.

        Raises:
            ValueError: a value is not valid.
        """
        values: dict[str, Any] = {}
        for setting in fields(cls):
            name = setting.name
            text = parameters.get(name)
            if name in FROM_ENVIRONMENT:
                text = environment.get(ENVIRONMENT_PREFIX + name.upper()) or text
            if text is None:
                continue
            if name in MINIMUM:
                values[name] = _whole_number(name, text, MINIMUM[name])
            elif name == "nice":
                values[name] = int(text)
            else:
                values[name] = text
        return cls(**values)

    @property
    def encodes(self) -> bool:
        """Return whether the model encodes images."""
        return self.answers != KNOWN_IMAGES

    @property
    def has_gpu_networks(self) -> bool:
        """Return whether the encoder scales images, and the decoder makes masks."""
        return self.networks == GPU_NETWORKS


DEFAULTS = OrchestratorSettings()


def _whole_number(name: str, text: str, minimum: int) -> int:
    if not text.isdecimal() or int(text) < minimum:
        expected = f"a whole number of at least {minimum}"
        raise ValueError(f"{name}: expected {expected}, got {text!r}")
    return int(text)
