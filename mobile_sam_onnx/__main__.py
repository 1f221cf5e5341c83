"""Command line: `python -m mobile_sam_onnx --weights auto --output model_repository`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mobile_sam_onnx.errors import MobileSamOnnxError
from mobile_sam_onnx.weights import Preparer

MAX_VERSION = 2**31 - 1
"""As requests may name them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, or 1 after a known error told in one line, 130 after Ctrl+C."""
    parser = argparse.ArgumentParser(
        prog="python -m mobile_sam_onnx", description="Make the ONNX models of a Triton model repository from weights."
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--weights", help="auto (default), official, builtin, random, or the path of a weights file")
    choice.add_argument("--checkpoint", type=Path, metavar="PATH", help="a weights file: .pt, .safetensors or .npz")
    parser.add_argument("--output", type=Path, required=True, metavar="DIRECTORY", help="the model repository")
    parser.add_argument(
        "--version",
        type=_version,
        default=1,
        metavar="N",
        help="of the models: N > 1 stands beside version 1, and is what is asked unless a request names another",
    )
    options = parser.parse_args(arguments)
    preparer = Preparer(options.output, _report, version=options.version)
    try:
        if options.checkpoint:
            preparer.from_file(options.checkpoint)
        else:
            preparer.prepare(options.weights or "auto")
    except MobileSamOnnxError as error:
        _report(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _report("interrupted; run it again to continue")
        return 128 + signal.SIGINT
    return 0


def _version(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_VERSION):
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1 and at most {MAX_VERSION}, got {text!r}"
        )
    return int(text)


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
