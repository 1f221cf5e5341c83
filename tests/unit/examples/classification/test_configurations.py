import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from tests.unit.examples.classification.modules import EXAMPLE, REPOSITORY

CONFIGURATIONS = [*sorted(REPOSITORY.glob("*/config.pbtxt")), *sorted(EXAMPLE.glob("variants/*/config.pbtxt"))]
NETS = [path for path in CONFIGURATIONS if not path.parent.name.startswith("classification")]


def parse(path):
    return text_format.Parse(path.read_text(), ModelConfig())


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.parent.name)
def test_every_configuration_is_valid(path):
    config = parse(path)
    assert config.backend or config.platform
    assert config.max_batch_size == 8
    if path.is_relative_to(REPOSITORY):
        assert config.name == path.parent.name


@pytest.mark.parametrize("path", NETS, ids=lambda path: path.parent.name)
def test_every_network_variant_has_batching_two_instances_and_warm_up(path):
    config = parse(path)
    assert config.name == "wide_resnet101_2"
    assert max(config.dynamic_batching.preferred_batch_size) == config.max_batch_size
    assert config.dynamic_batching.max_queue_delay_microseconds > 0
    assert [group.count for group in config.instance_group] == [2]
    assert config.max_batch_size in {warmup.batch_size for warmup in config.model_warmup}


@pytest.mark.parametrize("path", NETS, ids=lambda path: path.parent.name)
def test_every_network_variant_maps_pixels_to_logits(path):
    config = parse(path)
    ((name, kind, dims),) = [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.input]
    assert (name.removesuffix("__0"), kind, dims) == ("pixels", DataType.TYPE_UINT8, [224, 224, 3])
    ((name, kind, dims),) = [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.output]
    assert (name.removesuffix("__0"), kind, dims) == ("logits", DataType.TYPE_FP32, [1000])
    warmed = {name for warmup in config.model_warmup for name in warmup.inputs}
    assert warmed == {config.input[0].name}


def test_variants_name_their_platforms():
    platforms = {path.parent.name: parse(path).platform for path in NETS if "variants" in path.parts}
    assert platforms == {"torchscript": "pytorch_libtorch", "tensorrt": "tensorrt_plan"}


def test_ensemble_connects_matching_tensors():
    ensemble = parse(REPOSITORY / "classification" / "config.pbtxt")
    known = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        model = parse(REPOSITORY / step.model_name / "config.pbtxt")
        inputs = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in model.input}
        assert {name: known[tensor] for name, tensor in step.input_map.items()} == inputs
        outputs = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in model.output}
        assert set(step.output_map) == set(outputs)
        known |= {tensor: outputs[name] for name, tensor in step.output_map.items()}
    assert {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in ensemble.output}.items() <= known.items()
