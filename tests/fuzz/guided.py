"""Fuzzing that is guided by coverage: `python -m tests.fuzz.guided images --seconds 60`, or `bodies`.

It begins with the corpus, and works in a temporary folder. What raises anything but a refusal, takes two seconds or
600 MB is printed with the path of its input, and the exit status is 1. Needs atheris.
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
INSTRUMENTED = ["PIL", "mobile_sam_images", "mobile_sam_prompts", "utils", "numpy.lib.format"]
PLUGINS = ("PngImagePlugin", "JpegImagePlugin", "WebPImagePlugin", "MpoImagePlugin", "TiffImagePlugin", "ImageFile")
"""What Pillow imports only when it opens a file, which is too late to be instrumented."""
FOUND = ("crash-", "timeout-", "oom-", "leak-")
"""How libFuzzer names the inputs that it found."""
MAX_PIXELS = 250_000
LIMITS = ["-timeout=2", "-rss_limit_mb=600", "-max_len=40000", "-error_exitcode=1", "-timeout_exitcode=1"]


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, and fuzz in another process, which libFuzzer ends; 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=("images", "bodies"))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
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
    print("found:", *(found or ["nothing; it ended early"]))
    return 1


def fuzz(name: str, seconds: int, seed: int, folder: Path) -> None:
    """Fuzz a target for so long, in a folder; ends the process."""
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
    """A function that reads an image file."""

    def read(data: bytes) -> None:
        ways_in.image_or_refusal(data, MAX_PIXELS)

    return read


def body(ways_in: Any) -> Callable[[bytes], None]:
    """A function that reads a body; its first byte says for which path it is."""
    paths = list(ways_in.MODELS)

    def read(data: bytes) -> None:
        ways_in.request_or_refusal(data[1:], paths[data[0] % len(paths)] if data else paths[0])

    return read


def _marked(name: str, data: bytes, ways_in: Any) -> bytes:
    """A body of the corpus behind the byte that says for which path it is."""
    return bytes([list(ways_in.MODELS).index(name.split("/", maxsplit=1)[0])]) + data


def _files(folder: Path) -> list[tuple[str, Path]]:
    return [(path.relative_to(folder).as_posix(), path) for path in sorted(folder.rglob("*")) if path.is_file()]


def _dictionary(tokens: tuple[bytes, ...]) -> str:
    """As libFuzzer reads it."""
    return "".join('"' + "".join(f"\\x{byte:02x}" for byte in token) + '"\n' for token in tokens)


if __name__ == "__main__":
    raise SystemExit(main())
