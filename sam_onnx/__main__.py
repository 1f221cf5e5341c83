"""Command line: `python -m sam_onnx --weights auto --output model_repository`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sam_onnx import __version__
from sam_onnx.descriptor import RECIPES
from sam_onnx.errors import SamOnnxError
from sam_onnx.sources import PUBLISHED
from sam_onnx.texts import printable
from sam_onnx.weights import Preparer

MAX_VERSION = 2**31 - 1
"""Highest version that a request may name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, 1 after a known error, 130 after Ctrl+C."""
    parser = argparse.ArgumentParser(
        prog="python -m sam_onnx",
        description="Write the ONNX models of a Triton model repository from weights.",
    )
    parser.add_argument(
        "--weights",
        help=(
            "auto (default), official, builtin, random, the path of a weights file (.pt,"
            " .safetensors or .npz), hf:owner/name[@revision] of the Hugging Face Hub, or one of"
            f" {', '.join(PUBLISHED)}, each with [@SHA256]; {' or '.join(RECIPES)} and a colon"
            " before a path or hf: name their fine-tunes"
        ),
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIRECTORY", help="model repository"
    )
    parser.add_argument(
        "--model-version",
        type=_version,
        default=1,
        metavar="N",
        help=(
            "model version to write (default: 1), beside other versions; requests that name none"
            " get the highest"
        ),
    )
    parser.add_argument(
        "--print-sha256",
        action="store_true",
        help=(
            "print the SHA-256 of the weights, as MOBILE_SAM_EXPECTED_WEIGHTS takes it, on standard"
            " output"
        ),
    )
    parser.add_argument("--version", action="version", version=f"sam_onnx {__version__}")
    options = parser.parse_args(arguments)
    preparer = Preparer(options.output, _report, version=options.model_version)
    try:
        identity = preparer.prepare(options.weights or "auto")
    except SamOnnxError as error:
        _report(f"error: {error}")
        return 1
    except MemoryError:
        _report(f"error: not enough memory to export {options.weights or 'auto'}")
        return 1
    except KeyboardInterrupt:
        _report("interrupted; run the command again to continue")
        return 128 + signal.SIGINT
    if options.print_sha256:
        print(identity.sha256)
    return 0


def _version(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_VERSION):
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 1 to {MAX_VERSION}, got {text!r}"
        )
    return int(text)


def _report(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
