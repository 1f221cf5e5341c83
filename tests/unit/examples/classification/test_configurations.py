import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from examples.classification.prepare import CONFIG, REPOSITORY

NETS = {
    "onnx": REPOSITORY / CONFIG,
    "pytorch_libtorch": REPOSITORY.parent / "variants/torch_model/config.pbtxt",
    "tensorrt_plan": REPOSITORY.parent / "variants/trt_model/config.pbtxt",
}


def parse(path):
    return text_format.Parse(path.read_text(), ModelConfig())


@pytest.mark.parametrize("platform", NETS)
def test_every_variant_of_the_network_has_the_same_tensors_and_batches(platform):
    config = parse(NETS[platform])
    assert config.name == NETS[platform].parent.name
    assert (config.platform or config.backend.removesuffix("runtime")) == platform
    assert max(config.dynamic_batching.preferred_batch_size) == config.max_batch_size
    assert config.max_batch_size in {warmup.batch_size for warmup in config.model_warmup}
    tensors = [
        (tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in (*config.input, *config.output)
    ]
    suffix = "__0" if platform == "pytorch_libtorch" else ""
    assert tensors == [
        (f"actual_input_1{suffix}", DataType.TYPE_FP32, [3, 224, 224]),
        (f"output_1{suffix}", DataType.TYPE_FP32, [1000]),
    ]
    assert {name for warmup in config.model_warmup for name in warmup.inputs} == {
        f"actual_input_1{suffix}"
    }
