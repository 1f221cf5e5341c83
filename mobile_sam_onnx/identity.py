"""The record of a model repository's weights: `weights.json` beside the orchestrator's code. No heavy imports."""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

BUILDER_VERSION = "8"  # increase with every change of the graphs or the record, so that older exports are replaced
ORCHESTRATORS = ("mobile_sam_everything", "mobile_sam_costly", "mobile_sam_cached", "mobile_sam")
"""Models that read the record; `mobile_sam` is written last, when everything else is complete."""
SAM_THRESHOLDS = {"pred_iou_thresh": 0.88, "stability_score_thresh": 0.95}


@dataclass(frozen=True)
class VersionFolders:
    """Folders of one version in a model repository, one for each model."""

    repository: Path
    version: int = 1

    @property
    def encoder(self) -> Path:
        """Path of the encoder."""
        return self._folder("mobile_sam_encoder") / "model.onnx"

    @property
    def decoder(self) -> Path:
        """Path of the decoder."""
        return self._folder("mobile_sam_decoder") / "model.onnx"

    @property
    def records(self) -> list[Path]:
        """Paths of `weights.json`, one for each model that reads it."""
        return [self._folder(model) / "weights.json" for model in ORCHESTRATORS]

    def is_complete(self) -> bool:
        """Return whether all files exist."""
        return all(path.is_file() for path in (self.encoder, self.decoder, *self.records))

    def copy_code(self) -> None:
        """Copy what Triton loads of the orchestrator's models, `model.py`, from the newest other version.

        Raises:
            OSError: a file cannot be written.
        """
        for model in ORCHESTRATORS:
            others = [int(path.parent.name) for path in (self.repository / model).glob("[1-9]*/*.py")]
            others = [version for version in others if version != self.version]
            for path in (self.repository / model / str(max(others))).glob("*.py") if others else ():
                copy = self._folder(model) / path.name
                if not copy.is_file():
                    shutil.copyfile(path, copy.with_suffix(".new"))
                    copy.with_suffix(".new").replace(copy)

    def has_code(self) -> bool:
        """Return whether the orchestrator's code exists, without which Triton cannot serve the networks."""
        return all(any(self._folder(model).glob("*.py")) for model in ORCHESTRATORS)

    def _folder(self, model: str) -> Path:
        return self.repository / model / str(self.version)


@dataclass(frozen=True)
class Identity:
    """Origin of a set of weights."""

    name: str
    """`official`, `random`, or the name of a file."""
    sha256: str
    """SHA-256 of the weights' files in hex; of the tensors if there is no file."""
    trained: bool
    """False for random values."""
    note: str
    """Description in one sentence."""
    architecture: str = "mobile_sam"
    """Architecture of the networks, by which the service chooses engines: `mobile_sam` or `builtin`."""
    everything: dict[str, float] = field(default_factory=lambda: dict(SAM_THRESHOLDS))
    """Default thresholds of automatic masks; Segment Anything's unless set."""


def fingerprint(source: str) -> str:
    """Return the id of an export, which depends on this builder and on `source`, the id of the weights."""
    return hashlib.sha256(f"{BUILDER_VERSION}:{source}".encode()).hexdigest()


def current_export(folders: VersionFolders, source: str) -> Identity | None:
    """Return the identity of a complete export of `source`, None if there is none."""
    if not folders.is_complete():
        return None
    try:
        record = json.loads(folders.records[-1].read_text(encoding="utf-8"))
        return Identity(**record) if record.pop("fingerprint") == fingerprint(source) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def record_text(identity: Identity, source: str) -> str:
    """Return the content of `weights.json`."""
    return json.dumps({**asdict(identity), "fingerprint": fingerprint(source)}, indent=2) + "\n"


def sha256_of(*paths: Path) -> str:
    """Return the SHA-256 of a file, or of several in this order, in hex; raise `OSError` if one cannot be read."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    return digest.hexdigest()
