"""Model repositories with the plan for a GPU, and without some of what it does for GPUs."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from benchmarks import gpu_plans
from orchestrator import tensors
from orchestrator.settings import GPU_NETWORKS
from utils.inference.known_images import KNOWN_IMAGES, KnownImages

MODELS = (*tensors.MODELS, *tensors.NETWORKS)


@pytest.fixture
def written(builtin_repository, tmp_path):
    """Return a function that writes a repository and returns its configurations by model."""

    def write(variant, *, on_gpu=False):
        folder = gpu_plans.write(builtin_repository, tmp_path / "models", variant, on_gpu=on_gpu)
        return {
            model: text_format.Parse((folder / model / "config.pbtxt").read_text(), ModelConfig())
            for model in MODELS
        }

    return write


def parameter(config, name):
    return config.parameters[name].string_value if name in config.parameters else None


def test_plan_has_networks_with_the_work_on_pixels_on_the_cpu(written):
    configs = written(gpu_plans.PLAN)
    for model in tensors.NETWORKS:
        assert configs[model].default_model_filename == "gpu.onnx"
    for model in tensors.MODELS:
        assert parameter(configs[model], "networks") == GPU_NETWORKS
        assert parameter(configs[model], "encoder_engine") == "onnxruntime f32"
    assert parameter(configs[tensors.SEGMENT_CACHED], "decoder_file") == "gpu.onnx"
    kinds = {group.kind for config in configs.values() for group in config.instance_group}
    assert kinds == {ModelInstanceGroup.KIND_CPU}


@pytest.mark.parametrize("variant", [gpu_plans.WITHOUT_PIXELS, gpu_plans.BEFORE])
def test_without_work_on_pixels_the_networks_are_those_of_a_cpu_with_the_plans_batch(
    written, variant
):
    configs = written(variant)
    for model, (inputs, outputs) in tensors.NETWORKS.items():
        assert configs[model].default_model_filename == "model.onnx"
        assert [value.name for value in configs[model].input] == [each.name for each in inputs]
        assert [value.name for value in configs[model].output] == [each.name for each in outputs]
    for model in tensors.MODELS:
        for name in gpu_plans.PARAMETERS_OF_PIXELS:
            assert parameter(configs[model], name) is None
    assert parameter(configs[tensors.EVERYTHING], "decoder_batch") == "64"


@pytest.mark.parametrize(
    ("variant", "backend"),
    [
        (gpu_plans.PLAN, "onnxruntime"),
        (gpu_plans.WITHOUT_PIXELS, "onnxruntime"),
        (gpu_plans.WITHOUT_OWN_DECODERS, None),
        (gpu_plans.BEFORE, None),
    ],
)
def test_processes_for_known_images_have_own_decoders_unless_left_out(written, variant, backend):
    config = written(variant)[tensors.SEGMENT_CACHED]
    assert parameter(config, "decoder_backend") == backend


def test_python_files_are_compiled_so_that_triton_finds_no_change(builtin_repository, tmp_path):
    folder = gpu_plans.write(builtin_repository, tmp_path / "models", on_gpu=False)
    compiled = {file.parents[2].name for file in folder.glob("*/1/__pycache__/model.*.pyc")}
    assert compiled == set(tensors.MODELS)


@pytest.mark.parametrize(
    ("variant", "asks"), [(gpu_plans.ASKING_FIRST, True), (gpu_plans.PLAN, False)]
)
def test_variant_without_a_table_of_known_images_asks_for_new_ones(
    written, tmp_path, variant, asks
):
    written(variant)
    embeddings = tmp_path / "models-cache" / "embeddings"
    embeddings.mkdir(parents=True, exist_ok=True)
    assert KnownImages(embeddings / KNOWN_IMAGES).has("", "0" * 64) == asks
