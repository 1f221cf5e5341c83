"""What the tests of embeddings share: entries, caches, and other processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import mobile_sam_cache
import numpy as np
import pytest
from mobile_sam_cache import EMBEDDING_SHAPE, EmbeddingCache, Entry, pack

SOURCES = Path(mobile_sam_cache.__file__).parent


class Entries:
    """Entries to test with, each with a name and contents of its own."""

    def name(self, seed: int) -> str:
        """In place of the SHA-256 of an image."""
        return hashlib.sha256(str(seed).encode()).hexdigest()

    def make(self, seed: int, file_bytes: int = 100) -> Entry:
        generator = np.random.default_rng(seed)
        embedding = generator.random(EMBEDDING_SHAPE, np.float32).astype(np.float16) - np.float16(0.5)
        return Entry(embedding, (480 + seed, 640 + seed), generator.bytes(file_bytes))

    def file(self, seed: int) -> bytes:
        return b"".join(pack(self.make(seed)))

    def same(self, found: Entry | None, wanted: Entry) -> bool:
        """Whether an entry was found, and has the contents of another."""
        return (
            found is not None
            and found.embedding.dtype == np.float16
            and np.array_equal(found.embedding, wanted.embedding)
            and found.size_hw == wanted.size_hw
            and bytes(found.file) == bytes(wanted.file)
        )


@pytest.fixture
def entries() -> Entries:
    return Entries()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "embeddings"


@pytest.fixture
def said() -> list[str]:
    """The warnings of the caches and tiers of a test."""
    return []


@pytest.fixture
def open_cache(folder: Path, said: list[str]) -> Callable[..., EmbeddingCache]:
    """A cache as another process would open it: nothing is at hand yet."""

    def opened(max_bytes: int = 2**30, fingerprint: str = "f" * 64, at: Path = folder) -> EmbeddingCache:
        return EmbeddingCache(at, fingerprint, max_bytes, said.append)

    return opened


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python programs that can import the model's modules, and ends them with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(program: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with process:
            process.kill()
