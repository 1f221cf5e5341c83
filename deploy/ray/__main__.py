"""Entry point of `python -m deploy.ray`."""

import sys

import typer

from mobile_sam_client import MobileSamError
from mobile_sam_client._commands.output import CommandError, describe_with_file
from mobile_sam_client._datasets.values import DatasetError


def main() -> None:
    """Run the command; a known error is one line."""
    try:
        import pyarrow as pa  # noqa: PLC0415 (may be missing, as Ray)

        from deploy.ray.batch import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}: install the extra `batch` with `make env-batch`")
    try:
        typer.run(run)
    except (CommandError, DatasetError, MobileSamError, OSError, pa.ArrowException) as error:
        sys.exit(f"error: {describe_with_file(error)}")


if __name__ == "__main__":
    main()
