"""Coverage-guided fuzzing: `python -m tests.fuzz.guided images --seconds 60`, or `bodies`.

Starts from the corpus. An input that raises anything but a refusal, or takes more than two seconds or 600 MB, is
reported with its path in a temporary folder; the exit status is 1 then. Needs atheris.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "model_repository" / "mobile_sam" / "1"
INSTRUMENTED = ["PIL", "orchestrator", "utils", "numpy.lib.format"]
PLUGINS = ("PngImagePlugin", "JpegImagePlugin", "WebPImagePlugin", "MpoImagePlugin", "TiffImagePlugin", "ImageFile")
"""Modules that Pillow imports when it opens a file, too late to be instrumented."""
FOUND = ("crash-", "timeout-", "oom-", "leak-")
"""Prefixes of libFuzzer's files with failing inputs."""
MAX_PIXELS = 250_000
LIMITS = ["-timeout=2", "-rss_limit_mb=600", "-max_len=40000", "-error_exitcode=1", "-timeout_exitcode=1"]


def main(arguments: list[str] | None = None) -> int:
    """Fuzz in a child process, which libFuzzer exits; return 1 if an input fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=("images", "bodies"), help="code to fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="time limit")
    parser.add_argument("--seed", type=int, default=1, help="seed of the mutations")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{options.target}-"))
    child = os.fork()
    if child == 0:
        fuzz(options.target, options.seconds, options.seed, folder)
    _, status = os.waitpid(child, 0)
    if status == 0:
        shutil.rmtree(folder)
        return 0
    found = [str(path) for path in folder.iterdir() if path.name.startswith(FOUND)]
    print("found:", *(found or ["nothing; the fuzzer exited early"]))
    return 1


def fuzz(name: str, seconds: int, seed: int, folder: Path) -> None:
    """Fuzz a target, with seeds and findings in `folder`, and exit the process."""
    atheris = importlib.import_module("atheris")
    sys.path.insert(0, str(MODEL))
    with atheris.instrument_imports(include=INSTRUMENTED):
        for plugin in PLUGINS:
            importlib.import_module(f"PIL.{plugin}")
        ways_in = importlib.import_module("tests.fuzz.ways_in")
        corpus = importlib.import_module("tests.fuzz.make_corpus")
    seeds = folder / "seeds"
    seeds.mkdir()
    if name == "images":
        files = {file: path.read_bytes() for file, path in _files(corpus.IMAGES)}
    else:
        files = {file: _marked(file, path.read_bytes(), ways_in) for file, path in _files(corpus.BODIES)}
    for file, data in files.items():
        (seeds / file.replace("/", "-")).write_bytes(data)
    tokens = folder / "tokens"
    tokens.write_text(_dictionary(importlib.import_module("tests.fuzz.damage").TOKENS))
    flags = [f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={folder}/"]
    flags += [f"-dict={tokens}", "-print_final_stats=1", *LIMITS]
    target = image if name == "images" else body
    atheris.Setup([sys.argv[0], *flags, str(seeds)], target(ways_in))
    atheris.Fuzz()


def image(ways_in: Any) -> Callable[[bytes], None]:
    """Return a function that reads an image file."""

    def read(data: bytes) -> None:
        ways_in.image_or_refusal(data, MAX_PIXELS)

    return read


def body(ways_in: Any) -> Callable[[bytes], None]:
    """Return a function that reads a body whose first byte selects the path."""
    paths = list(ways_in.MODELS)

    def read(data: bytes) -> None:
        ways_in.request_or_refusal(data[1:], paths[data[0] % len(paths)] if data else paths[0])

    return read


def _marked(name: str, data: bytes, ways_in: Any) -> bytes:
    """Return a body of the corpus, prefixed with the byte that selects its path."""
    return bytes([list(ways_in.MODELS).index(name.split("/", maxsplit=1)[0])]) + data


def _files(folder: Path) -> list[tuple[str, Path]]:
    return [(path.relative_to(folder).as_posix(), path) for path in sorted(folder.rglob("*")) if path.is_file()]


def _dictionary(tokens: tuple[bytes, ...]) -> str:
    """Return the tokens in libFuzzer's format."""
    return "".join('"' + "".join(f"\\x{byte:02x}" for byte in token) + '"\n' for token in tokens)


if __name__ == "__main__":
    raise SystemExit(main())
