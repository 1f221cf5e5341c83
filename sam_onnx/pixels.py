"""Networks with the work on pixels: what a GPU does in less time than a CPU."""

import onnx
from onnx.helper import set_model_props

from sam_onnx.masks import with_masks
from sam_onnx.scaling import with_scaling


def with_pixels(network: onnx.ModelProto, resize: str) -> onnx.ModelProto:
    """Return an encoder that scales images itself, or a decoder that makes the images' masks.

    Args:
        network: the encoder or the decoder; its weights may be in a file beside it.
        resize: the descriptor's rule.
    """
    is_encoder = any(value.name == "images" for value in network.graph.input)
    model = with_scaling(network) if is_encoder else with_masks(network, resize)
    model.graph.name, model.ir_version = network.graph.name, network.ir_version
    model.producer_name, model.producer_version = network.producer_name, network.producer_version
    set_model_props(model, {prop.key: prop.value for prop in network.metadata_props})
    return model
