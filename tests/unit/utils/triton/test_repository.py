"""Deployment of the model repository for a machine."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from harness.repository import make_repository
from orchestrator import tensors
from sam_onnx.repository import replace_file
from tests.services import write_other_weights
from utils.settings import Settings
from utils.triton.installation import TritonSetupError
from utils.triton.machine import Machine
from utils.triton.plan import MOBILE_SAM_ENGINES, Plan, make_plan
from utils.triton.repository import (
    SERVICES,
    check_repository,
    check_weights,
    configure,
    deploy_once,
    export,
    is_configured,
    main,
    plan_for_this_machine,
    planned_config,
    take_snapshot,
)
from utils.triton.run import VARIABLE, RunState, remove_abandoned
from utils.triton.versions import versions

REPOSITORY = Path(__file__).resolve().parents[4] / "model_repository"
THIS_MACHINE = Machine(cores=2, bf16=True, gpu_memory_bytes=(), openvino=True, memory_bytes=2**35)
LAPTOP = make_plan(THIS_MACHINE, MOBILE_SAM_ENGINES, Settings())
GPU = replace(THIS_MACHINE, cores=8, bf16=False, gpu_memory_bytes=(80 * 10**9,), openvino=False)


def source(model: str) -> str:
    return (REPOSITORY / model / "config.pbtxt").read_text()


def applied(model: str, plan: Plan) -> tuple[ModelConfig, tuple[int, int], dict[str, str]]:
    """Return a model's configuration with a plan applied, its instances' number and kind, and
    its parameters.
    """
    parsed = text_format.Parse(planned_config(REPOSITORY / model, plan), ModelConfig())
    (group,) = parsed.instance_group
    return (
        parsed,
        (group.count, group.kind),
        {key: value.string_value for key, value in parsed.parameters.items()},
    )


def test_openvino_runs_the_encoder_and_the_decoder_of_all_masks_in_bfloat16():
    encoder, instances, parameters = applied("mobile_sam_encoder", LAPTOP)
    decoder, _, of_decoder = applied("mobile_sam_decoder", LAPTOP)
    assert (encoder.backend, decoder.backend) == ("openvino", "openvino")
    assert instances == (1, ModelInstanceGroup.KIND_CPU)
    assert (parameters["HINT_BF16"], "HINT_BF16" in of_decoder) == ("YES", False)
    for model in ("mobile_sam_cached", "mobile_sam_everything"):
        _, _, own = applied(model, LAPTOP)
        assert (own["decoder_backend"], own["INFERENCE_NUM_THREADS"]) == ("openvino", "2")
        is_bf16 = model == "mobile_sam_everything"
        assert own.get("HINT_BF16") == ("YES" if is_bf16 else None)
        assert own["own_decoder_engine"] == ("openvino bf16" if is_bf16 else "openvino f32")
    assert "decoder_backend" not in applied("mobile_sam", LAPTOP)[2]
    assert of_decoder["INFERENCE_NUM_THREADS"] == "2"
    assert not encoder.HasField("dynamic_batching")  # this backend runs images one by one
    assert (len(encoder.model_warmup), len(decoder.model_warmup)) == (0, 1)


def test_both_networks_run_on_a_gpu():
    plan = make_plan(GPU, MOBILE_SAM_ENGINES, Settings(engine="onnxruntime"))
    for model in ("mobile_sam_encoder", "mobile_sam_decoder"):
        parsed, instances, parameters = applied(model, plan)
        count = 2 if model == "mobile_sam_encoder" else 1
        assert (parsed.backend, instances) == ("onnxruntime", (count, ModelInstanceGroup.KIND_GPU))
        assert parameters["cudnn_conv_algo_search"] == "1"
        network = plan.encoder if model == "mobile_sam_encoder" else plan.decoder
        assert int(parameters["gpu_mem_limit"]) == network.memory_bytes >= 2**30
        inputs, outputs = tensors.GPU_NETWORKS[model]
        assert [entry.name for entry in parsed.input] == [tensor.name for tensor in inputs]
        assert [entry.name for entry in parsed.output] == [tensor.name for tensor in outputs]
        assert parsed.default_model_filename == "gpu.onnx"
        # Batches of rising sizes would exceed the limit.
        assert "arena_extend_strategy" not in parameters
        assert [warmup.batch_size for warmup in parsed.model_warmup] == [1]
        # Convolutions are prepared anew for each number of images.
        assert not parsed.HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("model", "count"), [("mobile_sam", 3), ("mobile_sam_cached", 3), ("mobile_sam_everything", 4)]
)
def test_orchestrator_parameters_describe_the_plan(model, count):
    machine = replace(GPU, gpu_memory_bytes=(8 * 10**9,))
    plan = make_plan(machine, MOBILE_SAM_ENGINES, Settings(orchestrators=3))
    _, instances, parameters = applied(model, plan)
    assert instances == (count, ModelInstanceGroup.KIND_CPU)
    described = {
        "encoder_engine": "cuda f32",
        "decoder_engine": "cuda f32",
        "decoder_batch": "64",
        "networks": "gpu",
        "mask_memory_bytes": str(plan.mask_memory_bytes),
    }
    assert described.items() <= parameters.items()
    assert "decoder_backend" not in parameters


def test_known_images_have_a_decoder_on_each_large_gpu():
    machine = replace(GPU, gpu_memory_bytes=(80 * 10**9, 80 * 10**9))
    plan = make_plan(machine, MOBILE_SAM_ENGINES, Settings(orchestrators=3))
    _, instances, parameters = applied("mobile_sam_cached", plan)
    assert plan.own_decoder
    assert instances == (plan.own_decoder.instances, ModelInstanceGroup.KIND_GPU)
    assert instances[0] == 2
    decoder = {
        "decoder_backend": "onnxruntime",
        "own_decoder_engine": "cuda f32",
        "decoder_file": "gpu.onnx",
        "decoder_batch": "8",
        "gpu_mem_limit": str(plan.own_decoder.memory_bytes),
    }
    assert decoder.items() <= parameters.items()
    gpu_decoder = applied("mobile_sam_decoder", plan)[2]
    for name in ("cudnn_conv_algo_search", "use_tf32"):
        assert parameters[name] == gpu_decoder[name]


@pytest.mark.parametrize("model", [entry.name for entry in sorted(REPOSITORY.iterdir())])
def test_apply_plan_keeps_all_other_settings(model):
    before, (after, _, parameters) = (
        text_format.Parse(source(model), ModelConfig()),
        applied(model, LAPTOP),
    )
    assert before.parameters.keys() <= parameters.keys()
    for parsed in (before, after):
        for changed in (
            "instance_group",
            "parameters",
            "backend",
            "dynamic_batching",
            "model_warmup",
        ):
            parsed.ClearField(changed)
    assert before == after


def test_a_snapshot_has_all_versions_and_files_and_no_later_ones(tmp_path):
    models = tmp_path / "models"
    shutil.copytree(REPOSITORY, models, ignore=shutil.ignore_patterns("1"))
    graph = Path("mobile_sam_encoder", "1", "model.onnx")
    (models / graph).parent.mkdir()
    (models / graph).write_text("a graph")
    (models / "mobile_sam_encoder" / "labels.txt").write_text("a label")
    folder = take_snapshot(models, tmp_path / "home")
    assert {entry.name for entry in folder.iterdir()} == {
        entry.name for entry in REPOSITORY.iterdir()
    }
    assert (folder / "mobile_sam_encoder" / "labels.txt").read_text() == "a label"
    replace_file(models / graph, b"another graph")
    (models / "mobile_sam_encoder" / "2").mkdir()
    assert (folder / graph).read_text() == "a graph"
    assert versions(folder, "mobile_sam_encoder") == [1]


def test_relative_folders_are_no_obstacle(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY, tmp_path / "models", ignore=shutil.ignore_patterns("1"))
    (tmp_path / "models" / "mobile_sam" / "1").mkdir()
    (tmp_path / "models" / "mobile_sam" / "1" / "weights.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    folder = take_snapshot(Path("models"), Path("home"))
    export(Path("models"), LAPTOP, Path("out"))
    for copy in (folder, Path("out")):
        assert (copy / "mobile_sam" / "1" / "weights.json").read_text() == "{}"


def test_an_invalid_configuration_and_an_unwritable_folder_are_one_line_errors(tmp_path):
    (tmp_path / "models" / "mobile_sam").mkdir(parents=True)
    (tmp_path / "models" / "mobile_sam" / "config.pbtxt").write_text("nonsense {")
    folder = take_snapshot(tmp_path / "models", tmp_path / "home")
    with pytest.raises(
        TritonSetupError, match=r"^cannot read the configuration of the model mobile_sam: [^\n]*$"
    ):
        configure(folder, LAPTOP)
    (tmp_path / "file").write_text("a file")
    with pytest.raises(TritonSetupError, match=r"^cannot copy [^\n]*$"):
        take_snapshot(REPOSITORY, tmp_path / "file")


@pytest.mark.parametrize(
    ("engines", "engine"),
    [
        ([["onnxruntime"]], "onnxruntime f32"),
        ([["openvino", "onnxruntime"]], "openvino f32"),
        ([MOBILE_SAM_ENGINES], "openvino bf16"),
        ([MOBILE_SAM_ENGINES, ["openvino", "onnxruntime"]], "openvino f32"),
    ],
)
def test_the_plan_depends_on_the_weights_of_all_versions(tmp_path, monkeypatch, engines, engine):
    monkeypatch.setattr("utils.triton.repository.this_machine", lambda: THIS_MACHINE)
    assert plan_for_this_machine(tmp_path, Settings()).encoder.engine == "openvino bf16"
    assert (
        plan_for_this_machine(None, Settings(engine="onnxruntime")).encoder.engine
        == "onnxruntime f32"
    )
    for version, each in enumerate(engines, 1):
        (tmp_path / "mobile_sam" / str(version)).mkdir(parents=True)
        record = {"descriptor": {"engines": each}}
        (tmp_path / "mobile_sam" / str(version) / "weights.json").write_text(json.dumps(record))
    assert plan_for_this_machine(tmp_path, Settings()).encoder.engine == engine


def test_the_plan_depends_on_the_size_of_all_versions_of_the_encoder(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "utils.triton.repository.this_machine", lambda: replace(THIS_MACHINE, cores=32)
    )
    planned = []
    for version, file in enumerate(("model.onnx", "model.onnx.data"), 1):
        (tmp_path / "mobile_sam_encoder" / str(version)).mkdir(parents=True)
        with (tmp_path / "mobile_sam_encoder" / str(version) / file).open("wb") as sparse:
            sparse.truncate(26 * 10**8)
        planned.append(plan_for_this_machine(tmp_path, Settings()).encoder.instances)
    assert planned == [2, 1]


def test_export_writes_plain_files_with_the_plan_applied(tmp_path):
    out = tmp_path / "out" / "repository"
    export(REPOSITORY, LAPTOP, out)
    assert (out / "mobile_sam_encoder" / "config.pbtxt").read_text().count('"openvino"') == 1
    files = sorted(REPOSITORY.glob("*/1/*.py"))
    assert len(files) == 4
    for file in files:
        copy = out / file.relative_to(REPOSITORY)
        assert not copy.is_symlink()
        assert copy.read_bytes() == file.read_bytes()
    assert not list(out.rglob("__pycache__"))
    assert not [path for path in out.rglob("*") if path.is_symlink()]
    with pytest.raises(TritonSetupError, match=f"cannot write {out}"):
        export(REPOSITORY, LAPTOP, out)
    assert [entry.name for entry in out.parent.iterdir()] == ["repository"]


@pytest.mark.parametrize(
    ("repository", "message"),
    [
        ("s3://bucket/models", "expected a source folder, got a URL"),
        ("/absent", "/model.onnx: no such file"),
    ],
    ids=["URL", "missing"],
)
def test_the_commands_failure_is_a_one_line_error(monkeypatch, tmp_path, repository, message):
    monkeypatch.setenv("MOBILE_SAM_MODEL_REPOSITORY", repository)
    with pytest.raises(SystemExit, match=rf"^error: [^\n]*{message}[^\n]*$"):
        main([str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("mode", "parent"), [("none", "cache"), ("explicit", "cache"), ("poll", REPOSITORY)]
)
def test_triton_reads_a_snapshot_or_the_repository_by_control_mode(
    tmp_path, monkeypatch, mode, parent
):
    monkeypatch.setenv(VARIABLE, "")
    RunState(str(tmp_path / "run"), "key", 8002).publish()
    settings = Settings(cache_dir=tmp_path / "cache", model_control_mode=mode)
    first = deploy_once(REPOSITORY, settings)
    assert first.is_relative_to(tmp_path / parent)
    # The other processes of the service use the same folder, even if the repository has changed.
    assert mode == "poll" or deploy_once(tmp_path / "changed", settings) == first
    assert RunState.current().source == (None if mode == "poll" else str(REPOSITORY))


def test_each_service_has_a_folder_of_its_own_that_is_kept_while_it_runs(tmp_path, monkeypatch):
    settings = Settings(cache_dir=tmp_path)
    folders = set()
    for number in range(2):
        monkeypatch.setenv(VARIABLE, "")
        RunState(str(tmp_path / f"run{number}"), "key", 8002).publish()
        folders.add(deploy_once(REPOSITORY, settings))
    assert len(folders) == 2
    (tmp_path / SERVICES / "mobile_sam_triton_1_killed" / "models").mkdir(parents=True)
    assert {folder / "models" for folder in remove_abandoned(tmp_path / SERVICES)} == folders
    assert len(list((tmp_path / SERVICES).iterdir())) == 2


def test_an_unwritable_cache_is_a_one_line_error(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    RunState(str(tmp_path / "run"), "key", 8002).publish()
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(TritonSetupError, match=r"^cannot write .*services: Not a directory$"):
        deploy_once(REPOSITORY, Settings(cache_dir=tmp_path / "cache"))


def test_other_weights_than_the_expected_ones_are_a_one_line_error(tmp_path):
    (tmp_path / "mobile_sam" / "1").mkdir(parents=True)
    (tmp_path / "mobile_sam" / "1" / "weights.json").write_text(
        '{"name": "builtin", "sha256": "bb"}'
    )
    check_weights(tmp_path, "bb")
    with pytest.raises(
        TritonSetupError, match=r"SHA-256 aa, got bb \(builtin\): another command may have replaced"
    ):
        check_weights(tmp_path, "aa")
    with pytest.raises(TritonSetupError, match="got none"):
        check_weights(tmp_path / "absent", "aa")


@pytest.fixture
def two_weights(tmp_path) -> tuple[Path, Path]:
    """Repositories with the built-in networks, and with others of the same shapes."""
    repositories = tmp_path / "one", tmp_path / "other"
    for repository in repositories:
        make_repository(repository, "builtin")
    write_other_weights(repositories[1])
    return repositories


@pytest.mark.parametrize("model", ["mobile_sam_encoder", "mobile_sam_decoder"])
def test_network_of_other_weights_in_the_same_path_is_a_one_line_error(
    two_weights, tmp_path, model
):
    one, other = two_weights
    take_snapshot(one, tmp_path / "before")
    replace_file(
        one / model / "1" / "model.onnx", (other / model / "1" / "model.onnx").read_bytes()
    )
    expected = (
        f"{one / model / '1' / 'model.onnx'} is not the file that was written with the weights"
        " builtin: "
    )
    with pytest.raises(TritonSetupError, match=expected):
        take_snapshot(one, tmp_path / "after")


def test_record_that_names_no_files_is_accepted(two_weights, tmp_path):
    one, _ = two_weights
    for path in one.glob("*/1/weights.json"):
        record = json.loads(path.read_text())
        del record["networks"]
        path.write_text(json.dumps(record))
    replace_file(one / "mobile_sam_encoder" / "1" / "model.onnx", b"by another builder")
    taken = take_snapshot(one, tmp_path / "home")
    assert (taken / "mobile_sam_encoder" / "1" / "model.onnx").read_bytes() == b"by another builder"


def test_a_missing_file_of_the_snapshot_is_named_by_its_path_in_the_repository(tmp_path):
    with pytest.raises(
        TritonSetupError, match=r"^/repository/mobile_sam_encoder/1/model.onnx: no such file"
    ):
        check_repository(Path("/repository"), tmp_path)


@pytest.mark.parametrize(
    ("engines", "batch", "fits"),
    [
        (MOBILE_SAM_ENGINES, 8, True),
        (["openvino", "onnxruntime"], 8, False),
        (MOBILE_SAM_ENGINES, 1, False),
    ],
)
def test_running_configuration_fits_a_new_version_or_not(
    tmp_path, monkeypatch, engines, batch, fits
):
    monkeypatch.setattr("utils.triton.repository.this_machine", lambda: THIS_MACHINE)
    models = tmp_path / "models"
    shutil.copytree(REPOSITORY, models, ignore=shutil.ignore_patterns("1"))
    plan = plan_for_this_machine(models, Settings())
    deployed = take_snapshot(models, tmp_path / "home")
    configure(deployed, plan)
    (models / "mobile_sam" / "2").mkdir()
    record = json.dumps({"descriptor": {"engines": list(engines)}})
    (models / "mobile_sam" / "2" / "weights.json").write_text(record)
    config = models / "mobile_sam_encoder" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", f"max_batch_size: {batch}"))
    assert is_configured(models, Settings(), deployed) == fits
