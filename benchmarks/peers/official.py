"""The official predictor, of the package `mobilesam-mirror`. Runs in the peers' environment, without the service."""

from __future__ import annotations

from benchmarks.peers import operators

operators.declare()

from mobile_sam import SamPredictor, sam_model_registry  # noqa: E402


def load(checkpoint: str) -> SamPredictor:
    """Load the model as its README says: `.eval()` after loading brings the learned attention biases in."""
    model = sam_model_registry["vit_t"](checkpoint=checkpoint)
    model.eval()
    return SamPredictor(model)
