"""The built-in model: a small promptable segmenter trained on generated scenes, with the interface of MobileSAM."""

from mobile_sam_onnx.builtin.decoder import build_decoder
from mobile_sam_onnx.builtin.encoder import build_encoder
from mobile_sam_onnx.builtin.weights import WEIGHTS, as_float32, is_builtin, load_weights

__all__ = ["WEIGHTS", "as_float32", "build_decoder", "build_encoder", "is_builtin", "load_weights"]
