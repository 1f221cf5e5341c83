import numpy as np
import onnxruntime
import pytest

from examples.classification.graph import build_graph
from examples.classification.untrained import NARROW, random_state
from sam_onnx import CheckpointError
from tests.unit.examples.classification.pixels import pixels_module
from tests.unit.examples.classification.reference import EXPECTED, NETS, pixels


def logits(state, images):
    """Return the network's logits of pictures, (N, 224, 224, 3) uint8, normalised by the step
    before it.
    """
    normalised = np.stack([pixels_module().normalise(image) for image in images])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = build_graph(state).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(["output_1"], {"actual_input_1": normalised})[0]


@pytest.mark.parametrize("name", NETS)
def test_results_equal_those_of_pytorch(name):
    with np.load(EXPECTED) as expected:
        reference = expected[name]
    found = logits(random_state(NETS[name]), pixels())
    np.testing.assert_allclose(found, reference, rtol=1e-4, atol=1e-4)
    assert len({tuple(row) for row in reference.round(2)}) == len(reference)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc.bias": None}, r"missing key: expected fc\.bias \(1000\)"),
        (
            {"layer2.1.conv2.weight": (32, 16, 3, 3)},
            r"expected layer2\.1\.conv2\.weight \(32, 32, 3, 3\), got",
        ),
        ({"layer1.0.bn3.bias": None}, r"missing key: expected layer1\.0\.bn3\.bias"),
    ],
    ids=["no bias", "grouped", "no bottleneck"],
)
def test_missing_or_wrong_tensor_is_named(change, message):
    state = random_state(NARROW)
    for key, shape in change.items():
        if shape is None:
            del state[key]
        else:
            state[key] = np.zeros(shape, np.float32)
    with pytest.raises(CheckpointError, match=message):
        build_graph(state)
