"""torchvision's bottleneck ResNets (He et al. 2015, arXiv:1512.03385; wide ones: Zagoruyko et al.,
1605.07146) as ONNX.

Widths, depths and the number of classes are read from the tensors. The strides are the same in all
these networks: 2 in the stem and its pooling, and 2 in the first 3x3 convolution of each later
stage.

Batch norm is folded into the convolutions. ONNX Runtime also does that, but the folded network
loads faster, and not every engine does it.
"""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor, Var

from sam_onnx.nodes import conv_batch_norm, finished_model, linear, sizes_of
from sam_onnx.tensors import StateDict, Tensors

SIZE = 224
STAGES = 4


def build_graph(state: StateDict) -> onnx.ModelProto:
    """Build the network as a checked ONNX model.

    Input `actual_input_1` (N, 3, 224, 224) float32 normalised RGB. Output `output_1` (N, classes)
    float32.

    Raises:
        CheckpointError: a tensor is missing or has the wrong shape.
    """
    tensors = Tensors(state)
    images = spox.argument(Tensor(np.float32, ("N", 3, SIZE, SIZE)))
    x = op.relu(conv_batch_norm(images, tensors, 7, stride=2, names=("conv1", "bn1")))
    x = op.max_pool(x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])[0]
    for stage in range(1, STAGES + 1):
        for index, block in enumerate(tensors.under(f"layer{stage}").children()):
            x = _block(x, block, 2 if stage > 1 and index == 0 else 1)
    features = op.flatten(op.global_average_pool(x))
    weight = tensors.get("fc.weight", None, sizes_of(x)[0])
    logits = linear(features, weight.T, tensors.get("fc.bias", weight.shape[0]))
    return finished_model("resnet", {"actual_input_1": images}, {"output_1": logits})


def _block(x: Var, tensors: Tensors, stride: int) -> Var:
    """Add a bottleneck: narrow 1x1, 3x3, widen 1x1, with a 1x1 shortcut if the shapes differ."""
    y = op.relu(conv_batch_norm(x, tensors, 1, names=("conv1", "bn1")))
    y = op.relu(
        conv_batch_norm(y, tensors, 3, sizes_of(y)[0], stride=stride, names=("conv2", "bn2"))
    )
    y = conv_batch_norm(y, tensors, 1, names=("conv3", "bn3"))
    if stride > 1 or sizes_of(y)[0] != sizes_of(x)[0]:
        shortcut = tensors.under("downsample")
        x = conv_batch_norm(x, shortcut, 1, sizes_of(y)[0], stride=stride, names=("0", "1"))
    return op.relu(op.add(x, y))
