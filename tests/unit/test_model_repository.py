"""Model repository: config.pbtxt files agree with the declared tensors, and folders are
self-contained.
"""

import ast
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from orchestrator import tensors
from orchestrator.settings import DEFAULTS, KNOWN_IMAGES, OrchestratorSettings

REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
ORCHESTRATOR = REPOSITORY.parent / "orchestrator"
NAMES = {"BYTES": "TYPE_STRING"}
REQUIRED_INPUTS = {tensors.EVERYTHING: {"call", "point_coords"}}


def config(model: str, file: str = "config.pbtxt") -> model_config_pb2.ModelConfig:
    return text_format.Parse(
        (REPOSITORY / model / file).read_text(), model_config_pb2.ModelConfig()
    )


def declared(entries) -> list[tuple[str, str, tuple[int, ...]]]:
    return [
        (entry.name, model_config_pb2.DataType.Name(entry.data_type), tuple(entry.dims))
        for entry in entries
    ]


def imported(source: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def as_configured(wanted: Iterable[tensors.Tensor]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [
        (tensor.name, NAMES.get(tensor.datatype, f"TYPE_{tensor.datatype}"), tensor.shape)
        for tensor in wanted
    ]


@pytest.mark.parametrize("model", [*tensors.MODELS, *tensors.NETWORKS])
def test_models_have_the_declared_tensors(model):
    inputs, outputs = {**tensors.MODELS, **tensors.NETWORKS}[model]
    assert declared(config(model).input) == as_configured(inputs)
    assert declared(config(model).output) == as_configured(outputs)


@pytest.mark.parametrize("model", tensors.MODELS)
def test_only_the_inputs_that_every_request_has_are_required(model):
    assert {
        entry.name for entry in config(model).input if not entry.optional
    } == REQUIRED_INPUTS.get(model, set())


@pytest.mark.parametrize("model", tensors.GPU_NETWORKS)
def test_networks_of_gpus_have_the_declared_tensors(model):
    inputs, outputs = tensors.GPU_NETWORKS[model]
    on_gpu = config(model, "configs/gpu.pbtxt")
    assert declared(on_gpu.input) == as_configured(inputs)
    assert declared(on_gpu.output) == as_configured(outputs)
    assert (on_gpu.name, on_gpu.default_model_filename) == (model, "gpu.onnx")


@pytest.mark.parametrize("file", ["config.pbtxt", "configs/gpu.pbtxt"])
@pytest.mark.parametrize("model", tensors.NETWORKS)
def test_onnx_models_warm_up_with_every_input(model, file):
    parsed = config(model, file)
    inputs = parsed.model_warmup[0].inputs
    assert set(inputs) == {entry.name for entry in parsed.input}
    for value in inputs.values():
        if value.input_data_file:
            data = (REPOSITORY / model / "warmup" / value.input_data_file).read_bytes()
            assert len(data) == 4 * value.dims[0]


def test_configurations_override_defaults_only_by_other_values():
    overrides = {}
    for model in tensors.MODELS:
        parameters = config(model).parameters
        values = {name: value.string_value for name, value in parameters.items()}
        settings = asdict(OrchestratorSettings.from_parameters(values, {}))
        changed = {name for name, value in asdict(DEFAULTS).items() if settings[name] != value}
        assert changed == set(values)
        overrides[model] = {name: settings[name] for name in values}
    assert overrides == {
        tensors.SEGMENT: {"nice": 5},
        tensors.SEGMENT_CACHED: {"answers": KNOWN_IMAGES},
        tensors.SEGMENT_COSTLY: {"nice": 10},
        tensors.EVERYTHING: {"nice": 10},
    }


def test_repository_has_no_links_and_no_code_but_the_models():
    files = [path for path in REPOSITORY.rglob("*.py") if path.parent.name == "1"]
    assert sorted(path.parent.parent.name for path in files) == sorted(tensors.MODELS)
    assert not [path for path in REPOSITORY.rglob("*") if path.is_symlink()]


def test_orchestrator_imports_neither_the_service_nor_triton_but_in_one_module():
    names = {path.name: imported(path) for path in ORCHESTRATOR.glob("*.py")}
    assert len(names) > 10
    elsewhere = {"utils", "service", "client", "sam_onnx", "bentoml"}
    assert [name for name, modules in names.items() if modules & elsewhere] == []
    assert [
        name for name, modules in names.items() if "triton_python_backend_utils" in modules
    ] == ["triton_io.py"]
