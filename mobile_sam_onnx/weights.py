"""Preparation of a model repository with the chosen weights; an export that is up to date is not repeated."""

import hashlib
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobile_sam_onnx.errors import CheckpointError, DownloadError, ExportError
from mobile_sam_onnx.identity import Identity, VersionFolders, current_export, sha256_of
from mobile_sam_onnx.sources import BUILTIN, OFFICIAL, OFFICIAL_PACKAGE

if TYPE_CHECKING:
    from onnx import ModelProto

    from mobile_sam_onnx.tensors import StateDict

RANDOM_SOURCE = "random:0"
BUILTIN_NOTE = (
    "The built-in weights: a small segmenter trained on generated scenes; "
    "the official MobileSAM weights segment better."
)
BUILTIN_THRESHOLDS = {"pred_iou_thresh": 0.6, "stability_score_thresh": 0.8}
"""Lower than MobileSAM's, as the scores are lower and the edges softer."""
_OFFICIAL_IDENTITY = Identity(
    "official", OFFICIAL.sha256, trained=True, note="The official MobileSAM checkpoint, mobile_sam.pt."
)
Report = Callable[[str], None]


class Preparer:
    """Exporter of weights to one version of a repository's models; reports each step in a line."""

    def __init__(self, repository: Path, report: Report, *, version: int = 1) -> None:
        self._folders = VersionFolders(repository, version)
        self._report = report

    def prepare(self, choice: str) -> Identity:
        """Export `choice`: `auto`, `official`, `builtin`, `random`, or the path of a weights file.

        `auto` is `official` if those weights are exported, cached or can be fetched, otherwise `builtin`.

        Raises:
            MobileSamOnnxError: the weights cannot be fetched or read, or the export cannot be written.
        """
        named = {"auto": self._auto, "official": self._official, "builtin": self._builtin, "random": self._random}
        return named[choice]() if choice in named else self.from_file(Path(choice))

    def from_file(self, path: Path) -> Identity:
        """Export the weights in a file.

        Raises:
            MobileSamOnnxError: the file cannot be read, or the export cannot be written.
        """
        try:
            digest = sha256_of(path)
        except OSError as error:
            raise CheckpointError(f"cannot read the weights file {path}: {error.strerror or error}") from error
        identity = Identity(path.name, digest, trained=True, note=f"Weights from the file {path.name}.")
        return self._export(_OFFICIAL_IDENTITY if digest == OFFICIAL.sha256 else identity, digest, lambda: _built(path))

    def _auto(self) -> Identity:
        try:
            return self._official()
        except DownloadError as error:
            self._report(f"warning: {error}")
            self._report("warning: using the built-in weights instead, which segment less well")
            return self._builtin()

    def _official(self) -> Identity:
        if done := self._current(OFFICIAL.sha256):
            return done
        path: Path = import_module("mobile_sam_onnx.download").fetch_official(OFFICIAL, OFFICIAL_PACKAGE, self._report)
        return self._export(_OFFICIAL_IDENTITY, OFFICIAL.sha256, lambda: _built(path))

    def _builtin(self) -> Identity:
        digest = sha256_of(*BUILTIN)
        identity = Identity(
            "builtin", digest, trained=True, note=BUILTIN_NOTE, architecture="builtin", everything=BUILTIN_THRESHOLDS
        )
        return self._export(identity, digest, lambda: _model().builtin())

    def _random(self) -> Identity:
        if done := self._current(RANDOM_SOURCE):
            return done
        architecture = import_module("mobile_sam_onnx.architecture")
        state: StateDict = architecture.random_state(architecture.Architecture())
        digest = hashlib.sha256()
        for key, value in sorted(state.items()):
            digest.update(key.encode())
            digest.update(value.tobytes())
        note = "Untrained random weights: answers have the right form, but the masks are meaningless."
        identity = Identity("random", digest.hexdigest(), trained=False, note=note)
        return self._export(identity, RANDOM_SOURCE, lambda: _model().build(state))

    def _current(self, source: str, identity: Identity | None = None) -> Identity | None:
        """Return the identity of the export in the repository if it matches `source` (and `identity`)."""
        done = current_export(self._folders, source)
        if done is None or identity not in (None, done):  # same file, other name
            return None
        try:
            self._folders.copy_code()
        except OSError as error:
            raise ExportError(f"cannot write to {error.filename}: {error.strerror or error}") from error
        self._report(f"{self._location()} is up to date with {done.name} weights")
        return done

    def _export(self, identity: Identity, source: str, load: "Callable[[], list[ModelProto]]") -> Identity:
        if done := self._current(source, identity):
            return done
        started = time.monotonic()
        _model().export(load(), self._folders, identity, source)
        self._report(f"export: {time.monotonic() - started:.0f} s ({identity.name} weights to {self._location()})")
        if not self._folders.has_code():
            self._report(
                f"note: Triton also needs the code of the other models, which {self._folders.repository} lacks; "
                "copy the project's model_repository there first"
            )
        return identity

    def _location(self) -> str:
        version = self._folders.version
        return str(self._folders.repository) + (f" (version {version})" if version > 1 else "")


def _model() -> Any:
    return import_module("mobile_sam_onnx.model")  # takes a second


def _built(path: Path) -> "list[ModelProto]":
    networks: list[ModelProto] = _model().build(import_module("mobile_sam_onnx.checkpoint").load_checkpoint(path))
    return networks
