"""What a model repository says about its weights: `weights.json` beside the orchestrator's code. No heavy imports."""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

BUILDER_VERSION = "8"  # raise it with every change of the graphs and of the record, so that older exports are made anew
ORCHESTRATORS = ("mobile_sam_everything", "mobile_sam_costly", "mobile_sam_cached", "mobile_sam")
"""The models that read the record; that of `mobile_sam` is written last, when everything else is there."""
SAM_THRESHOLDS = {"pred_iou_thresh": 0.88, "stability_score_thresh": 0.95}


@dataclass(frozen=True)
class Place:
    """A version of the models in a repository: a folder of that number in each model's."""

    repository: Path
    version: int = 1

    @property
    def encoder(self) -> Path:
        """The encoder's file."""
        return self._in("mobile_sam_encoder") / "model.onnx"

    @property
    def decoder(self) -> Path:
        """The decoder's file."""
        return self._in("mobile_sam_decoder") / "model.onnx"

    @property
    def records(self) -> list[Path]:
        """A `weights.json` for each model that reads it."""
        return [self._in(model) / "weights.json" for model in ORCHESTRATORS]

    def complete(self) -> bool:
        """Whether all of it is there."""
        return all(path.is_file() for path in (self.encoder, self.decoder, *self.records))

    def bring_code(self) -> None:
        """Copy what this version lacks of the orchestrator's code from the newest other version.

        Raises:
            OSError: a file cannot be written.
        """
        for model in ORCHESTRATORS:
            others = [int(path.parent.name) for path in (self.repository / model).glob("[1-9]*/*.py")]
            others = [version for version in others if version != self.version]
            for path in (self.repository / model / str(max(others))).glob("*.py") if others else ():
                copy = self._in(model) / path.name
                if not copy.is_file():
                    # What are links there become files: a version must outlive the others.
                    shutil.copyfile(path, copy.with_suffix(".new"))
                    copy.with_suffix(".new").replace(copy)

    def has_code(self) -> bool:
        """Whether the orchestrator's code is there, without which the networks are of no use to Triton."""
        return all(any(self._in(model).glob("*.py")) for model in ORCHESTRATORS)

    def _in(self, model: str) -> Path:
        return self.repository / model / str(self.version)


@dataclass(frozen=True)
class Identity:
    """Where weights came from."""

    name: str
    """`official`, `random`, or the name of a file."""
    sha256: str
    """Of the weights file in hex; of the tensors where there is no file."""
    trained: bool
    """False for random values, whose masks mean nothing."""
    note: str
    """One sentence for people."""
    architecture: str = "mobile_sam"
    """Of the networks, which tells what runs them best: `mobile_sam` or `builtin`."""
    everything: dict[str, float] = field(default_factory=lambda: dict(SAM_THRESHOLDS))
    """What automatic masks must reach where a request does not say; the defaults are Segment Anything's."""


def fingerprint(source: str) -> str:
    """What an export depends on: this builder, and `source`, which tells weights apart."""
    return hashlib.sha256(f"{BUILDER_VERSION}:{source}".encode()).hexdigest()


def current_export(place: Place) -> tuple[Identity, str] | None:
    """Identity and fingerprint of a complete export in `place`, None where there is none."""
    if not place.complete():
        return None
    try:
        record = json.loads(place.records[-1].read_text(encoding="utf-8"))
        mark = str(record.pop("fingerprint"))
        return Identity(**record), mark
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def record_text(identity: Identity, mark: str) -> str:
    """The JSON text of `weights.json`."""
    return json.dumps({**asdict(identity), "fingerprint": mark}, indent=2) + "\n"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hex. Raises OSError where it cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()
