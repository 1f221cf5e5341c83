"""The config.pbtxt files: valid, and true to the tensors declared elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from utils import tensors

REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
NAMES = {"BYTES": "TYPE_STRING"}


def config(model: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse((REPOSITORY / model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def declared(entries) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {entry.name: (model_config_pb2.DataType.Name(entry.data_type), tuple(entry.dims)) for entry in entries}


@pytest.mark.parametrize("model", [entry.name for entry in REPOSITORY.iterdir()])
def test_the_name_is_the_folders(model):
    assert config(model).name == model


@pytest.mark.parametrize("side", ["input", "output"])
def test_the_orchestrator_declares_the_tensors_the_service_uses(side):
    wanted = tensors.INPUTS if side == "input" else tensors.OUTPUTS
    assert declared(getattr(config(tensors.MODEL), side)) == {
        tensor.name: (NAMES.get(tensor.datatype, f"TYPE_{tensor.datatype}"), tensor.shape) for tensor in wanted
    }


@pytest.mark.parametrize("model", ["mobile_sam_encoder", "mobile_sam_decoder"])
def test_onnx_models_warm_up_with_every_input_and_run_where_the_machine_is_best(model):
    parsed = config(model)
    assert parsed.backend == "onnxruntime"
    assert parsed.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_AUTO
    assert set(parsed.model_warmup[0].inputs) == {entry.name for entry in parsed.input}


def test_the_encoder_batches_what_waits():
    assert config("mobile_sam_encoder").HasField("dynamic_batching")
    assert config("mobile_sam_encoder").max_batch_size > 1


@pytest.mark.parametrize("source", sorted((REPOSITORY / "mobile_sam" / "1").glob("*.py")), ids=lambda path: path.name)
def test_the_orchestrator_needs_nothing_of_the_service(source):
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"utils", "service", "client", "mobile_sam_onnx", "bentoml"}
