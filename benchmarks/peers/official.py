"""Official predictor of the package `mobilesam-mirror`, in the peers' environment."""

from __future__ import annotations

from benchmarks.peers import operators

operators.declare()

from mobile_sam import SamPredictor, sam_model_registry  # noqa: E402


def load(checkpoint: str) -> SamPredictor:
    """Load the model as in its README: `.eval()` after loading applies the learned attention biases."""
    model = sam_model_registry["vit_t"](checkpoint=checkpoint)
    model.eval()
    return SamPredictor(model)
