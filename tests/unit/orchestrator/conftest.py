"""Shared fixtures: cache entries, caches, a pipeline, and other processes."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from orchestrator.cache import CachedImage, EmbeddingCache, Layout, pack
from orchestrator.embeddings import Embeddings
from orchestrator.pipeline import Pipeline
from orchestrator.stages import Stages
from tests.unit.orchestrator.pipelines import EMBEDDING, decoder

WEIGHTS = "f" * 64


class Entries:
    """Test entries, each with its own name and content."""

    def name(self, seed: int) -> str:
        """Return a stand-in for the SHA-256 of an image."""
        return hashlib.sha256(str(seed).encode()).hexdigest()

    def make(
        self,
        seed: int,
        file_bytes: int = 100,
        layout: Layout = Layout(WEIGHTS),  # noqa: B008
    ) -> CachedImage:
        generator = np.random.default_rng(seed)
        embedding = {
            name: generator.random(shape, np.float32).astype(np.float16) - np.float16(0.5)
            for name, shape in layout.shapes.items()
        }
        return CachedImage(embedding, (480 + seed, 640 + seed), generator.bytes(file_bytes))

    def file(self, seed: int) -> bytes:
        return b"".join(pack(self.name(seed), self.make(seed), Layout(WEIGHTS)))

    def same(self, found: CachedImage | None, wanted: CachedImage) -> bool:
        """Return whether an entry was found and equals another."""
        return (
            found is not None
            and found.embedding.keys() == wanted.embedding.keys()
            and all(tensor.dtype == np.float16 for tensor in found.embedding.values())
            and all(
                np.array_equal(found.embedding[name], wanted.embedding[name])
                for name in wanted.embedding
            )
            and found.size_hw == wanted.size_hw
            and found.orientation == wanted.orientation
            and found.sample_range == wanted.sample_range
            and bytes(found.file) == bytes(wanted.file)
        )


@pytest.fixture
def entries() -> Entries:
    return Entries()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "embeddings"


@pytest.fixture
def warnings() -> list[str]:
    """Warnings of the caches and Redis tiers of a test."""
    return []


@pytest.fixture
def open_cache(folder: Path, warnings: list[str]) -> Callable[..., EmbeddingCache]:
    """Function that opens a cache as a new process does: no entries in memory."""

    def opened(
        max_bytes: int = 2**30, fingerprint: str = WEIGHTS, at: Path = folder
    ) -> EmbeddingCache:
        return EmbeddingCache(at, Layout(fingerprint), max_bytes, warnings.append)

    return opened


@pytest.fixture
def pipeline(open_cache) -> Pipeline:
    stages = Stages(lambda *_: None)
    stages.begin(lambda: None, counts=False)
    return Pipeline(
        run_decoder=decoder,
        embeddings=Embeddings(
            open_cache(), None, lambda _: EMBEDDING, 10**6, lambda _: None, stages=stages
        ),
        stages=stages,
        identity={
            "weights": {"name": "none"},
            "engine": {"encoder": "a", "decoder": "b"},
            "model_version": 3,
        },
        thresholds={"pred_iou_thresh": 0.75, "stability_score_thresh": 0.5},
        max_answer_bytes=10**7,
        decoder_batch=8,
    )
