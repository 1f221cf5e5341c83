"""The config.pbtxt files: valid, and true to the tensors declared elsewhere. The folders: self-contained."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from utils import tensors

REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
SOURCES = REPOSITORY / "mobile_sam" / "1"
NAMES = {"BYTES": "TYPE_STRING"}
MODELS = [
    "mobile_sam",
    "mobile_sam_cached",
    "mobile_sam_costly",
    "mobile_sam_decoder",
    "mobile_sam_encoder",
    "mobile_sam_everything",
]
MAY_BE_LEFT_OUT = {
    tensors.SEGMENT: {tensor.name for tensor in tensors.SEGMENT_INPUTS},
    tensors.SEGMENT_CACHED: {tensor.name for tensor in tensors.SEGMENT_INPUTS},
    tensors.SEGMENT_COSTLY: {tensor.name for tensor in tensors.SEGMENT_INPUTS},
    tensors.EVERYTHING: {
        "exchange",
        "input_image",
        "image_id",
        "image_owner",
        "pred_iou_thresh",
        "stability_score_thresh",
    },
}


def config(model: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse((REPOSITORY / model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def declared(entries) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(entry.name, model_config_pb2.DataType.Name(entry.data_type), tuple(entry.dims)) for entry in entries]


def imported(source: Path) -> set[str]:
    """The modules that a file imports, by their first name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def sources(model: str) -> set[str]:
    return {path.name for path in (REPOSITORY / model / "1").glob("*.py")}


def test_these_are_the_models():
    assert sorted(entry.name for entry in REPOSITORY.iterdir()) == MODELS


@pytest.mark.parametrize("model", MODELS)
def test_the_name_is_the_folders(model):
    assert config(model).name == model


@pytest.mark.parametrize("model", tensors.MODELS)
def test_models_declare_the_tensors_the_service_uses(model):
    inputs, outputs = tensors.MODELS[model]
    for wanted, entries in ((inputs, config(model).input), (outputs, config(model).output)):
        assert declared(entries) == [
            (tensor.name, NAMES.get(tensor.datatype, f"TYPE_{tensor.datatype}"), tensor.shape) for tensor in wanted
        ]


@pytest.mark.parametrize("model", tensors.MODELS)
def test_inputs_that_may_be_left_out_are_optional(model):
    assert {entry.name for entry in config(model).input if entry.optional} == MAY_BE_LEFT_OUT[model]


@pytest.mark.parametrize("model", tensors.MODELS)
def test_the_file_that_a_python_model_names_is_there_and_is_one(model):
    parsed = config(model)
    assert parsed.backend == "python"
    assert parsed.max_batch_size == 0
    file = REPOSITORY / model / "1" / (parsed.default_model_filename or "model.py")
    classes = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    assert "TritonPythonModel" in classes


@pytest.mark.parametrize("model", ["mobile_sam_encoder", "mobile_sam_decoder"])
def test_onnx_models_warm_up_with_every_input_and_run_where_the_machine_is_best(model):
    parsed = config(model)
    assert parsed.backend == "onnxruntime"
    assert parsed.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_AUTO
    assert set(parsed.model_warmup[0].inputs) == {entry.name for entry in parsed.input}


def test_the_encoder_batches_what_waits():
    assert config("mobile_sam_encoder").HasField("dynamic_batching")
    assert config("mobile_sam_encoder").max_batch_size > 1


def test_only_the_cached_model_answers_known_images_alone():
    answers = {model: config(model).parameters["answers"].string_value for model in tensors.MODELS}
    assert answers.pop(tensors.SEGMENT_CACHED) == "known images"
    assert set(answers.values()) == {""}


def test_what_takes_long_runs_at_lower_priority():
    nice = {model: int(config(model).parameters["nice"].string_value or "0") for model in tensors.MODELS}
    assert nice == {tensors.SEGMENT_CACHED: 0, tensors.SEGMENT: 5, tensors.SEGMENT_COSTLY: 10, tensors.EVERYTHING: 10}


@pytest.mark.parametrize(
    "setting", ["max_image_pixels", "max_answer_bytes", "embedding_cache_dir", "embedding_cache_bytes"]
)
def test_models_that_share_embeddings_have_the_same_settings(setting):
    values = {config(model).parameters[setting].string_value for model in tensors.MODELS}
    assert len(values) == 1
    assert values != {""}


@pytest.mark.parametrize("model", [tensors.SEGMENT_CACHED, tensors.SEGMENT_COSTLY, tensors.EVERYTHING])
def test_the_other_models_are_links_to_the_orchestrators_code_and_nothing_else(model):
    generated = {"__pycache__", "weights.json"}
    links = {path.name: path for path in (REPOSITORY / model / "1").iterdir() if path.name not in generated}
    assert links.keys() == sources(tensors.SEGMENT)
    for name, link in links.items():
        assert link.is_symlink()
        assert link.readlink() == Path("../../mobile_sam/1", name)
        assert link.resolve() == (SOURCES / name).resolve()


@pytest.mark.parametrize("source", sorted(SOURCES.glob("*.py")), ids=lambda path: path.name)
def test_the_orchestrator_needs_nothing_of_the_service(source):
    assert not imported(source) & {"utils", "service", "client", "mobile_sam_onnx", "bentoml"}


@pytest.mark.parametrize("source", sorted(SOURCES.glob("*.py")), ids=lambda path: path.name)
def test_modules_of_its_own_lie_beside_it(source):
    of_its_own = {name for name in imported(source) if name.startswith("mobile_sam")}
    assert {f"{name}.py" for name in of_its_own} <= sources(tensors.SEGMENT)


def test_one_module_alone_speaks_to_triton():
    knowing = {path.name for path in SOURCES.glob("*.py") if "triton_python_backend_utils" in imported(path)}
    assert knowing == {"mobile_sam_models.py"}
