"""What a model repository says about its weights: `weights.json` beside the orchestrator's code. No heavy imports."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

BUILDER_VERSION = "5"  # raise it with every change of the graphs and of the record, so that older exports are made anew
ENCODER_PATH = Path("mobile_sam_encoder/1/model.onnx")
DECODER_PATH = Path("mobile_sam_decoder/1/model.onnx")
RECORD_PATHS = tuple(
    Path(model) / "1" / "weights.json" for model in ("mobile_sam_everything", "mobile_sam_cached", "mobile_sam")
)
"""One for each model that reads it; that of `mobile_sam` is written last, when everything else is there."""
SAM_THRESHOLDS = {"pred_iou_thresh": 0.88, "stability_score_thresh": 0.95}


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


def fingerprint(source: str, *, attention_biases: bool) -> str:
    """What an export depends on: this builder, its option, and `source`, which tells weights apart."""
    return hashlib.sha256(f"{BUILDER_VERSION}:{attention_biases}:{source}".encode()).hexdigest()


def current_export(repository: Path) -> tuple[Identity, str] | None:
    """Identity and fingerprint of a complete export in `repository`, None where there is none."""
    if not all((repository / path).is_file() for path in (ENCODER_PATH, DECODER_PATH, *RECORD_PATHS)):
        return None
    try:
        record = json.loads((repository / RECORD_PATHS[-1]).read_text(encoding="utf-8"))
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
