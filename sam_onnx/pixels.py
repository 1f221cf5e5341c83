"""Networks with the work on pixels: what a GPU does in less time than a CPU."""

import onnx
from onnx.helper import make_graph, make_model, make_tensor_value_info, set_model_props

from sam_onnx.masks import with_masks
from sam_onnx.scaling import with_scaling


def with_pixels(network: onnx.ModelProto, resize: str) -> onnx.ModelProto:
    """Return an encoder that scales images itself, or a decoder that makes the images' masks.

    Args:
        network: the encoder or the decoder; its weights may be in a file beside it.
        resize: the descriptor's rule.
    """
    # Graphs are checked while they are built, which takes less than 2 GB and no files beside them.
    weights = list(network.graph.initializer)
    names = {weight.name for weight in weights}
    bare = _with_weights_as_inputs(network)
    is_encoder = any(value.name == "images" for value in network.graph.input)
    model = with_scaling(bare) if is_encoder else with_masks(bare, resize)
    inputs = [value for value in model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(weights)
    model.graph.name, model.ir_version = network.graph.name, network.ir_version
    model.producer_name, model.producer_version = network.producer_name, network.producer_version
    set_model_props(model, {prop.key: prop.value for prop in network.metadata_props})
    return model


def _with_weights_as_inputs(network: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network whose weights are inputs, without their values."""
    graph = network.graph
    weights = [
        make_tensor_value_info(weight.name, weight.data_type, weight.dims)
        for weight in graph.initializer
    ]
    bare = make_graph(graph.node, graph.name, [*graph.input, *weights], graph.output)
    return make_model(bare, opset_imports=network.opset_import, ir_version=network.ir_version)
