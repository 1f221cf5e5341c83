"""The model repository as this machine's Triton loads it: the files of the given one, each config.pbtxt by the plan.

The given repository is complete by itself, for any Triton and any machine; what depends on the machine (engine,
instances, threads) is set in copies of its config.pbtxt files. They lie in the cache folder, beside links to everything
else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from utils import tensors, versions
from utils.health import run_dir
from utils.machine import this_machine
from utils.plan import Network, Plan, PlanError, make_plan
from utils.settings import Settings, SettingsError
from utils.triton import TritonSetupError, check_repository
from utils.versions import DECODER, ENCODER

CONFIG = "config.pbtxt"
DEPLOYED_VARIABLE = "MOBILE_SAM_TRITON_REPOSITORY"
TENSORRT_WORKSPACE = 2 * 2**30
"""Bytes that TensorRT may use while it looks for the quickest kernels."""


def plan_here(repository: Path | None, settings: Settings) -> Plan:
    """The plan for this machine, the weights in `repository` and what was set; without one, for MobileSAM's size.

    Raises:
        PlanError: the engine that was set cannot run here.
    """
    architecture = "mobile_sam"
    if repository is not None:
        # Where it is not there yet, `utils.triton.check_repository` says so.
        record = versions.record(repository, versions.newest(repository)) or {}
        architecture = str(record.get("architecture", architecture))
    return make_plan(
        this_machine(),
        architecture,
        settings.engine,
        threads=settings.threads,
        encoders=settings.encoders,
        orchestrators=settings.orchestrators,
    )


def deploy_once(repository: Path, plan: Plan, settings: Settings) -> Path:
    """The folder that Triton reads, made by the first process of the service and inherited by the others.

    Where models are loaded while the service runs the folder changes with them, and so is this service's own.

    Raises:
        TritonSetupError: as `deploy`.
    """
    if inherited := os.environ.get(DEPLOYED_VARIABLE):
        return Path(inherited)
    parent = settings.cache_dir if settings.model_control_mode == "none" else run_dir()
    deployed = deploy(repository, plan, parent)
    os.environ[DEPLOYED_VARIABLE] = str(deployed)
    return deployed


def deploy(repository: Path, plan: Plan, cache_dir: Path) -> Path:
    """A repository with the models of `repository`, set up by the plan.

    Safe to call from several processes at once, and quick when it is there already.

    Args:
        repository: holds a folder per model.
        plan: what runs where.
        cache_dir: where the folder is made.

    Raises:
        TritonSetupError: a config.pbtxt cannot be read, or the folder cannot be written.
    """
    try:
        configs = {
            path.parent.name: planned(path.parent.name, path.read_text(encoding="utf-8"), plan)
            for path in sorted(repository.glob(f"*/{CONFIG}"))
        }
    except (OSError, text_format.ParseError) as error:
        raise TritonSetupError(f"cannot read the configuration of the models in {repository}: {error}") from error
    home = repository.resolve()
    files = {model: [entry for entry in sorted((home / model).iterdir()) if entry.name != CONFIG] for model in configs}
    digest = hashlib.sha256(repr((files, configs)).encode()).hexdigest()[:16]
    deployed = cache_dir / "deployments" / digest
    if deployed.is_dir():
        # A watchdog may have hidden a version that was not whole then.
        for model in configs:
            versions.follow(home, deployed, model)
        return deployed
    try:
        deployed.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        building = Path(tempfile.mkdtemp(dir=deployed.parent, prefix=".building-"))
        try:
            for model, config in configs.items():
                (building / model).mkdir()
                (building / model / CONFIG).write_text(config, encoding="utf-8")
                for entry in files[model]:
                    (building / model / entry.name).symlink_to(entry)
            try:
                building.rename(deployed)
            except OSError:
                if not deployed.is_dir():  # else another process was first with the same content
                    raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise TritonSetupError(f"cannot write {deployed.parent}: {error.strerror}") from error
    return deployed


def export(repository: Path, plan: Plan, cache_dir: Path, folder: Path) -> None:
    """Write a repository, set up by the plan, as plain files that can be copied to where Triton reads it from.

    Args:
        repository: holds a folder per model.
        plan: what runs where.
        cache_dir: as of `deploy`.
        folder: a new one.

    Raises:
        TritonSetupError: as `deploy`, or the folder is there already or cannot be written.
    """
    try:
        shutil.copytree(deploy(repository, plan, cache_dir), folder, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise TritonSetupError(f"cannot write {folder}: {error.strerror or error}") from error


def planned(model: str, config: str, plan: Plan) -> str:
    """The text of a model's config.pbtxt, set up by the plan.

    Raises:
        ParseError: the text is not a model configuration.
    """
    parsed = text_format.Parse(config, ModelConfig())
    if model in (ENCODER, DECODER):
        _set_up_network(parsed, plan.encoder if model == ENCODER else plan.decoder)
    elif model in tensors.MODELS:
        _set_instances(parsed, plan.instances()[model], gpu=False)
        _set(parsed, "encoder_engine", plan.encoder.engine)
        _set(parsed, "decoder_engine", plan.decoder.engine)
        _set(parsed, "decoder_batch", str(plan.decoder_batch))
    return str(text_format.MessageToString(parsed))


def _set_up_network(config: ModelConfig, network: Network) -> None:
    config.backend = network.backend
    _set_instances(config, network.instances, network.gpu)
    if network.backend == "openvino":
        config.ClearField("dynamic_batching")  # this backend runs images one by one: none needs to wait for the others
        _set(config, "INFERENCE_NUM_THREADS", str(network.threads))
        _set(config, "NUM_STREAMS", "1")
        if network.precision == "bf16":
            _set(config, "HINT_BF16", "YES")
    elif not network.gpu:
        _set(config, "intra_op_thread_count", str(network.threads))
    if network.gpu:
        _warm_up_every_batch(config)
    if network.tensorrt:
        accelerator = config.optimization.execution_accelerators.gpu_execution_accelerator.add(name="tensorrt")
        accelerator.parameters["precision_mode"] = "FP16"
        accelerator.parameters["max_workspace_size_bytes"] = str(TENSORRT_WORKSPACE)


def _warm_up_every_batch(config: ModelConfig) -> None:
    """For each batch size a GPU has kernels chosen and memory taken when it first comes: have that done at load."""
    for warmup in list(config.model_warmup):
        for size in range(warmup.batch_size + 1, config.max_batch_size + 1):
            larger = config.model_warmup.add()
            larger.CopyFrom(warmup)
            larger.name, larger.batch_size = f"{warmup.name}_{size}", size


def _set_instances(config: ModelConfig, count: int, gpu: bool) -> None:
    del config.instance_group[:]
    kind = ModelInstanceGroup.KIND_GPU if gpu else ModelInstanceGroup.KIND_CPU
    config.instance_group.add(count=count, kind=kind)


def _set(config: ModelConfig, parameter: str, value: str) -> None:
    config.parameters[parameter].string_value = value


def main(arguments: Sequence[str]) -> int:
    """`python -m utils.deployment FOLDER`: write the repository for this machine, or for what the settings say.

    Returns:
        The exit status.
    """
    if len(arguments) != 1:
        print("usage: python -m utils.deployment FOLDER", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_environment()
        repository = settings.repository_in(Path(__file__).resolve().parents[1])
        if repository is None:
            raise SettingsError("MOBILE_SAM_MODEL_REPOSITORY: expected a folder to write another one from, got a URL")
        check_repository(repository)
        plan = plan_here(repository, settings)
        export(repository, plan, settings.cache_dir, Path(arguments[0]))
    except (SettingsError, PlanError, TritonSetupError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{arguments[0]}: {plan}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
