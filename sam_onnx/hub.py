"""Weights from the Hugging Face Hub, by its own client, which reads `HF_ENDPOINT`, `HF_TOKEN`
and `HF_HOME`.
"""

from pathlib import Path

from huggingface_hub import (
    constants,
    errors,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)

from sam_onnx.download import MAX_FILE_BYTES
from sam_onnx.errors import DownloadError

FILE = "model.safetensors"
REASONS = (
    (errors.HFValidationError, "expected hf:owner/name"),
    (errors.GatedRepoError, "the model is gated: accept its licence on its page, and set HF_TOKEN"),
    (errors.RepositoryNotFoundError, "no such model, or a private one, which needs HF_TOKEN"),
    (errors.RevisionNotFoundError, "no such revision"),
    (
        errors.RemoteEntryNotFoundError,
        f"the model has no {FILE} in one piece, and no other file is read",
    ),
)
"""Explanations of the client's errors, the first that fits."""


def fetch_from_hub(name: str, revision: str) -> tuple[Path, str]:
    """Return the path of a model's `model.safetensors` in the Hub's cache, and its commit; without
    a network, too.

    Args:
        name: the model as `owner/name`.
        revision: branch, tag or commit.

    Raises:
        DownloadError: the model or its file is missing, access is denied, or there is no network or
            disk space.
    """
    try:
        if not isinstance(try_to_load_from_cache(name, FILE, revision=revision), str):
            # This fails at once, a download after retries.
            size = get_hf_file_metadata(hf_hub_url(name, FILE, revision=revision)).size
            if size is None or size > MAX_FILE_BYTES:
                raise OSError(
                    0, f"expected at most {MAX_FILE_BYTES} bytes, got {size or 'an unknown number'}"
                )
        path = Path(hf_hub_download(name, FILE, revision=revision))
    except Exception as error:  # the client's, its transport's and the disk's
        reason = next((text for kind, text in REASONS if isinstance(error, kind)), None)
        reason = (
            reason or getattr(error, "strerror", None) or f"cannot connect ({type(error).__name__})"
        )
        raise DownloadError(
            f"cannot fetch {FILE} of {constants.ENDPOINT}/{name} at {revision}: {reason}; "
            "or give the path of a copy (WEIGHTS=path)"
        ) from error
    return path, path.parent.name
