"""Entry point of `python -m deploy.ray`."""

import sys

import typer

from deploy.ray.errors import BatchError
from mobile_sam_client import MobileSamError
from mobile_sam_client.batches import describe_error
from mobile_sam_client.datasets import DatasetError


def main() -> None:
    """Run the command; a known error is one line."""
    try:
        import pyarrow as pa  # noqa: PLC0415 (may be missing, as Ray)

        from deploy.ray.batch import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}: install the extra `batch` with `make env-batch`")
    try:
        typer.run(run)
    except (BatchError, DatasetError, MobileSamError, OSError, pa.ArrowException) as error:
        sys.exit(f"error: {describe_error(error, with_file=True)}")


if __name__ == "__main__":
    main()
