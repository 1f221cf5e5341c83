"""Model repository: config.pbtxt files agree with the declared tensors, and folders are self-contained."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from utils.triton import tensors

REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
ORCHESTRATOR = REPOSITORY.parent / "orchestrator"
NAMES = {"BYTES": "TYPE_STRING"}
MODELS = [
    "mobile_sam",
    "mobile_sam_cached",
    "mobile_sam_costly",
    "mobile_sam_decoder",
    "mobile_sam_encoder",
    "mobile_sam_everything",
]
REQUIRED_INPUTS = {tensors.EVERYTHING: {"call", "point_coords"}}


def config(model: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse((REPOSITORY / model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def declared(entries) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(entry.name, model_config_pb2.DataType.Name(entry.data_type), tuple(entry.dims)) for entry in entries]


def imported(source: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_repository_has_the_expected_models_in_folders_of_their_names():
    assert sorted(entry.name for entry in REPOSITORY.iterdir()) == MODELS
    assert [config(model).name for model in MODELS] == MODELS


@pytest.mark.parametrize("model", tensors.MODELS)
def test_models_declare_the_tensors_the_service_uses(model):
    inputs, outputs = tensors.MODELS[model]
    for wanted, entries in ((inputs, config(model).input), (outputs, config(model).output)):
        assert declared(entries) == [
            (tensor.name, NAMES.get(tensor.datatype, f"TYPE_{tensor.datatype}"), tensor.shape) for tensor in wanted
        ]

    assert {entry.name for entry in config(model).input if not entry.optional} == REQUIRED_INPUTS.get(model, set())


@pytest.mark.parametrize("model", tensors.MODELS)
def test_python_models_define_a_model(model):
    parsed = config(model)
    assert (parsed.backend, parsed.max_batch_size) == ("python", 0)
    source = (REPOSITORY / model / "1" / "model.py").read_text()
    assert "TritonPythonModel" in [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize("model", ["mobile_sam_encoder", "mobile_sam_decoder"])
def test_onnx_models_run_on_the_best_device_and_warm_up_with_every_input(model):
    parsed = config(model)
    assert parsed.backend == "onnxruntime"
    assert parsed.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_AUTO
    assert set(parsed.model_warmup[0].inputs) == {entry.name for entry in parsed.input}
    assert parsed.HasField("dynamic_batching") == (parsed.max_batch_size > 1) == (model == "mobile_sam_encoder")


def test_only_the_cached_model_is_limited_to_known_images():
    answers = {model: config(model).parameters["answers"].string_value for model in tensors.MODELS}
    assert answers.pop(tensors.SEGMENT_CACHED) == "known images"
    assert set(answers.values()) == {""}


def test_slow_models_run_at_lower_priority():
    nice = {model: int(config(model).parameters["nice"].string_value or "0") for model in tensors.MODELS}
    assert nice == {tensors.SEGMENT_CACHED: 0, tensors.SEGMENT: 5, tensors.SEGMENT_COSTLY: 10, tensors.EVERYTHING: 10}


@pytest.mark.parametrize(
    "setting", ["max_image_pixels", "max_answer_bytes", "embedding_cache_dir", "embedding_cache_bytes"]
)
def test_models_that_share_embeddings_have_the_same_settings(setting):
    values = {config(model).parameters[setting].string_value for model in tensors.MODELS}
    assert len(values) == 1
    assert values != {""}


def test_repository_has_no_links_and_no_code_but_the_models():
    files = [path for path in REPOSITORY.rglob("*.py") if path.parent.name == "1"]
    assert sorted(path.parent.parent.name for path in files) == sorted(tensors.MODELS)
    assert not [path for path in REPOSITORY.rglob("*") if path.is_symlink()]


def test_orchestrator_imports_neither_the_service_nor_triton_but_in_one_module():
    names = {path.name: imported(path) for path in ORCHESTRATOR.glob("*.py")}
    assert len(names) > 10
    elsewhere = {"utils", "service", "client", "mobile_sam_onnx", "bentoml"}
    assert [name for name, modules in names.items() if modules & elsewhere] == []
    assert [name for name, modules in names.items() if "triton_python_backend_utils" in modules] == ["triton_io.py"]
