"""Deployment of the model repository for a machine."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from utils.settings import Settings
from utils.triton.installation import TritonSetupError
from utils.triton.machine import Machine
from utils.triton.plan import make_plan
from utils.triton.repository import (
    apply_plan,
    check_repository,
    deploy,
    deploy_once,
    export,
    main,
    plan_for_this_machine,
)
from utils.triton.run import VARIABLE, Run

REPOSITORY = Path(__file__).resolve().parents[4] / "model_repository"
LAPTOP = make_plan(Machine(cores=2, bf16=True, gpus=0, openvino=True), "mobile_sam")
GPU = Machine(cores=8, bf16=False, gpus=1, openvino=False)


def config(repository: Path, model: str) -> ModelConfig:
    return text_format.Parse((repository / model / "config.pbtxt").read_text(), ModelConfig())


def instances(parsed: ModelConfig) -> tuple[int, int]:
    (group,) = parsed.instance_group
    return group.count, group.kind


def parameters(parsed: ModelConfig) -> dict[str, str]:
    return {key: value.string_value for key, value in parsed.parameters.items()}


def test_deployed_repository_has_all_models_and_files(tmp_path):
    deployed = deploy(REPOSITORY, LAPTOP, tmp_path)
    for model in REPOSITORY.iterdir():
        for entry in model.iterdir():
            found = deployed / model.name / entry.name
            assert found.exists()
            assert found.name == "config.pbtxt" or found.resolve() == entry.resolve()


def test_openvino_runs_the_encoder_alone_in_bfloat16(tmp_path):
    deployed = deploy(REPOSITORY, LAPTOP, tmp_path)
    encoder, decoder = config(deployed, "mobile_sam_encoder"), config(deployed, "mobile_sam_decoder")
    assert (encoder.backend, decoder.backend) == ("openvino", "openvino")
    assert instances(encoder) == (1, ModelInstanceGroup.KIND_CPU)
    assert (parameters(encoder)["HINT_BF16"], "HINT_BF16" in parameters(decoder)) == ("YES", False)
    named = parameters(config(deployed, "mobile_sam"))
    assert (named["encoder_engine"], named["decoder_engine"]) == ("openvino bf16", "openvino f32")
    assert parameters(decoder)["INFERENCE_NUM_THREADS"] == "2"


def test_both_networks_run_on_a_gpu(tmp_path):
    deployed = deploy(REPOSITORY, make_plan(GPU, "mobile_sam"), tmp_path)
    for model in ("mobile_sam_encoder", "mobile_sam_decoder"):
        parsed = config(deployed, model)
        assert parsed.backend == "onnxruntime"
        assert instances(parsed) == (1, ModelInstanceGroup.KIND_GPU)
        assert not parsed.optimization.execution_accelerators.gpu_execution_accelerator
        assert parameters(parsed)["cudnn_conv_algo_search"] == "1"
        assert int(parameters(parsed)["gpu_mem_limit"]) >= 2**30
    encoder = config(deployed, "mobile_sam_encoder")
    assert [warmup.batch_size for warmup in encoder.model_warmup] == list(range(1, encoder.max_batch_size + 1))
    assert len({warmup.name for warmup in encoder.model_warmup}) == encoder.max_batch_size
    assert len(config(deployed, "mobile_sam_decoder").model_warmup) == 1


def test_tensorrt_accelerates_only_the_encoder(tmp_path):
    deployed = deploy(REPOSITORY, make_plan(GPU, "mobile_sam", "tensorrt"), tmp_path)
    (accelerator,) = config(
        deployed, "mobile_sam_encoder"
    ).optimization.execution_accelerators.gpu_execution_accelerator
    assert (accelerator.name, accelerator.parameters["precision_mode"]) == ("tensorrt", "FP16")
    decoder = config(deployed, "mobile_sam_decoder")
    assert not decoder.optimization.execution_accelerators.gpu_execution_accelerator


@pytest.mark.parametrize(("engine", "batches"), [("openvino", False), ("onnxruntime", True)])
def test_dynamic_batching_is_only_used_with_onnxruntime(tmp_path, engine, batches):
    plan = make_plan(Machine(cores=2, bf16=False, gpus=0, openvino=True), "mobile_sam", engine)
    encoder = config(deploy(REPOSITORY, plan, tmp_path), "mobile_sam_encoder")
    assert encoder.HasField("dynamic_batching") == batches


@pytest.mark.parametrize(
    ("model", "count"), [("mobile_sam", 3), ("mobile_sam_cached", 3), ("mobile_sam_everything", 1)]
)
def test_orchestrator_parameters_describe_the_plan(tmp_path, model, count):
    plan = make_plan(GPU, "mobile_sam", orchestrators=3)
    parsed = config(deploy(REPOSITORY, plan, tmp_path), model)
    assert instances(parsed) == (count, ModelInstanceGroup.KIND_CPU)
    assert parameters(parsed)["encoder_engine"] == "cuda f32"
    assert parameters(parsed)["decoder_engine"] == "cuda f32"
    assert parameters(parsed)["decoder_batch"] == "64"


@pytest.mark.parametrize("model", [entry.name for entry in sorted(REPOSITORY.iterdir())])
def test_apply_plan_keeps_all_other_settings(model):
    text = (REPOSITORY / model / "config.pbtxt").read_text()
    before, after = (text_format.Parse(config, ModelConfig()) for config in (text, apply_plan(model, text, LAPTOP)))
    assert {key: parameters(after)[key] for key in parameters(before).keys() - parameters(after).keys()} == {}
    for parsed in (before, after):
        parsed.ClearField("instance_group")
        parsed.ClearField("parameters")
        parsed.ClearField("backend")
        parsed.ClearField("dynamic_batching")
    assert before == after


def test_each_plan_has_one_folder_even_when_deployed_concurrently(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        (first,) = set(threads.map(lambda _: deploy(REPOSITORY, LAPTOP, tmp_path), range(8)))
    assert deploy(REPOSITORY, make_plan(GPU, "mobile_sam"), tmp_path) != first
    assert len(list(first.parent.iterdir())) == 2


def test_files_added_later_are_deployed_next_time(tmp_path):
    models = tmp_path / "models"
    shutil.copytree(REPOSITORY, models, ignore=shutil.ignore_patterns("1"))
    before = deploy(models, LAPTOP, tmp_path / "cache")
    (models / "mobile_sam_encoder" / "1").mkdir()
    (models / "mobile_sam_encoder" / "1" / "model.onnx").write_text("a graph")
    after = deploy(models, LAPTOP, tmp_path / "cache")
    assert not (before / "mobile_sam_encoder" / "1").exists()
    assert (after / "mobile_sam_encoder" / "1" / "model.onnx").read_text() == "a graph"


def test_an_invalid_configuration_is_a_one_line_error(tmp_path):
    (tmp_path / "models" / "mobile_sam").mkdir(parents=True)
    (tmp_path / "models" / "mobile_sam" / "config.pbtxt").write_text("nonsense {")
    with pytest.raises(TritonSetupError, match="cannot read the configuration of the models in ") as caught:
        deploy(tmp_path / "models", LAPTOP, tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_an_unwritable_cache_folder_is_an_error(tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(TritonSetupError, match=r"cannot write .*deployments: "):
        deploy(REPOSITORY, LAPTOP, tmp_path / "cache")


@pytest.mark.parametrize(("record", "engine"), [({"architecture": "builtin"}, "onnxruntime f32"), ({}, "openvino f32")])
def test_the_plan_depends_on_the_weights(tmp_path, monkeypatch, record, engine):
    monkeypatch.setattr("utils.triton.repository.this_machine", lambda: Machine(2, bf16=False, gpus=0, openvino=True))
    (tmp_path / "mobile_sam" / "1").mkdir(parents=True)
    (tmp_path / "mobile_sam" / "1" / "weights.json").write_text(json.dumps(record))
    assert plan_for_this_machine(tmp_path, Settings()).encoder.engine == engine


def test_export_writes_plain_files_with_the_plan_applied(tmp_path):
    export(REPOSITORY, LAPTOP, tmp_path / "cache", tmp_path / "out" / "repository")
    out = tmp_path / "out" / "repository"
    assert config(out, "mobile_sam_encoder").backend == "openvino"
    files = sorted(REPOSITORY.glob("*/1/*.py"))
    assert len(files) == 4
    for file in files:
        copy = out / file.relative_to(REPOSITORY)
        assert not copy.is_symlink()
        assert copy.read_bytes() == file.read_bytes()
    assert not list(out.rglob("__pycache__"))
    with pytest.raises(TritonSetupError, match=f"cannot write {out}"):
        export(REPOSITORY, LAPTOP, tmp_path / "cache", out)


@pytest.mark.parametrize(
    ("repository", "message"),
    [("s3://bucket/models", "expected a source folder, got a URL"), ("/absent", "/model.onnx: no such file")],
    ids=["URL", "missing"],
)
def test_the_commands_failure_is_a_one_line_error(monkeypatch, tmp_path, capsys, repository, message):
    assert main([]) == 2
    assert capsys.readouterr().err == "usage: python -m utils.triton.repository FOLDER\n"
    monkeypatch.setenv("MOBILE_SAM_MODEL_REPOSITORY", repository)
    assert main([str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("repository", [None, REPOSITORY / "absent"], ids=["none", "absent"])
def test_the_plan_without_weights_assumes_mobilesam(monkeypatch, repository):
    monkeypatch.setattr("utils.triton.repository.this_machine", lambda: Machine(2, bf16=False, gpus=0, openvino=True))
    assert plan_for_this_machine(repository, Settings()).encoder.engine == "openvino f32"
    assert plan_for_this_machine(repository, Settings(engine="onnxruntime")).encoder.engine == "onnxruntime f32"


@pytest.fixture
def service(monkeypatch, tmp_path):
    """Environment variables of one service."""
    monkeypatch.setenv(VARIABLE, "")
    Run(str(tmp_path / "run"), str(tmp_path / "shared"), "key", "mobile_sam_triton_0_", 8002).publish()


@pytest.mark.usefixtures("service")
def test_deploy_once_returns_the_same_folder_after_changes(tmp_path):
    repository = shutil.copytree(REPOSITORY, tmp_path / "repository", symlinks=True)
    settings = Settings(cache_dir=tmp_path / "cache", model_control_mode="explicit")
    first = deploy_once(repository, LAPTOP, settings)
    (repository / "mobile_sam" / "2").mkdir()
    assert deploy_once(repository, LAPTOP, settings) == first
    assert not (first / "mobile_sam" / "2").exists()


@pytest.mark.parametrize(("mode", "own"), [("none", "cache"), ("explicit", "run"), ("poll", "run")])
@pytest.mark.usefixtures("service")
def test_a_folder_with_changing_models_is_private_to_one_service(tmp_path, mode, own):
    settings = Settings(cache_dir=tmp_path / "cache", model_control_mode=mode)
    assert deploy_once(REPOSITORY, LAPTOP, settings).is_relative_to(tmp_path / own)


def test_a_repository_without_models_is_an_error(tmp_path):
    with pytest.raises(TritonSetupError, match=r"model\.onnx: no such file; `make weights` writes it"):
        check_repository(tmp_path)
