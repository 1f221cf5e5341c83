"""Copy of the model repository with settings for this machine.

The source repository works with any Triton on any machine. Settings that depend on the machine
(engine, instances, threads) are written into copies of its config.pbtxt files in the cache folder,
next to links to a snapshot of the weights.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from orchestrator import tensors
from orchestrator.settings import DEFAULTS, GPU_NETWORKS, OrchestratorSettings
from utils.settings import Settings, SettingsError
from utils.triton import versions
from utils.triton.installation import ROOT, TritonSetupError
from utils.triton.machine import this_machine
from utils.triton.plan import (
    MOBILE_SAM_ENGINES,
    OWN_MASKS_BYTES,
    Network,
    Plan,
    PlanError,
    make_plan,
)
from utils.triton.run import RunState, private_folder

CONFIG, GPU_CONFIG = "config.pbtxt", "configs/gpu.pbtxt"
"""A model's configuration, and the one that replaces a network's on GPUs."""
OWN_DECODER_PARAMETERS = {"cudnn_conv_algo_search": 1, "use_tf32": 0}
"""Parameters of a decoder on a GPU, as in its own configuration."""
SERVICES = "services"
"""Name of the folder in the cache folder with a folder for each running service."""


def plan_for_this_machine(repository: Path | None, settings: Settings) -> Plan:
    """Return the plan for this machine, the settings and the weights, all versions together.

    Raises:
        PlanError: the chosen engine cannot run on this machine.
    """
    engines_of_versions: list[Sequence[str]] = []
    if repository:
        for number in versions.versions(repository):
            record = versions.weights_record(repository, number)
            if record:
                engines_of_versions.append(record["descriptor"]["engines"])
    if not engines_of_versions:
        engines_of_versions = [MOBILE_SAM_ENGINES]
    newest = engines_of_versions[-1]
    common = [
        engine for engine in newest if all(engine in engines for engines in engines_of_versions)
    ]
    folders = repository.glob(f"{tensors.ENCODER}/[1-9]*") if repository else ()
    sizes = [
        sum(path.stat().st_size for path in folder.glob(f"{versions.NETWORK_FILE}*"))
        for folder in folders
    ]
    return make_plan(this_machine(), common, settings, sizes)


def deploy_once(repository: Path, settings: Settings) -> Path:
    """Return the folder for Triton to read, created by the first process of the service and
    inherited by the others.

    It has a snapshot of the repository and belongs to this service alone. In `poll` mode Triton
    reads the repository itself, without the plan.

    Raises:
        PlanError: as `plan_for_this_machine`.
        TritonSetupError: as `take_snapshot` and `configure`.
    """
    if settings.model_control_mode == "poll":  # Triton itself finds changes
        return repository
    run = RunState.current()
    if run.repository:
        return Path(run.repository)
    services = settings.cache_dir / SERVICES
    try:
        services.mkdir(parents=True, exist_ok=True, mode=0o700)
        home = private_folder(services)
    except OSError as error:
        raise TritonSetupError(f"cannot write {error.filename}: {error.strerror}") from None
    deployed = take_snapshot(repository, home)
    configure(deployed, plan_for_this_machine(deployed, settings))
    replace(run, repository=str(deployed), source=str(repository.resolve())).publish()
    return deployed


def take_snapshot(repository: Path, home: Path) -> Path:
    """Take a snapshot of a repository, and return the folder with links to it, for Triton.

    Args:
        repository: the model repository.
        home: folder of the snapshot and Triton's folder, on the repository's disk if possible.

    Raises:
        TritonSetupError: a file cannot be read or written, or the files of a version are of
            different weights.
    """
    home = home.resolve()  # the links are read from another folder
    deployment = versions.Deployment(repository.resolve(), home / "models")
    models = sorted(path.parent.name for path in repository.glob(f"*/{CONFIG}"))
    try:
        _copy_without_versions(repository, models, deployment.folder)
        numbers: set[int] = set()
        for model in models:
            numbers.update(versions.versions(repository, model))
        deployment.show(deployment.take(numbers, models), models)
    except (OSError, shutil.Error) as error:
        raise TritonSetupError(f"cannot copy {repository} to {home}: {error}") from error
    except versions.MixedWeights as error:
        raise TritonSetupError(str(error)) from None
    return deployment.folder


def configure(folder: Path, plan: Plan) -> None:
    """Apply a plan to the configurations in Triton's folder.

    Raises:
        TritonSetupError: a config.pbtxt is invalid, or cannot be written.
    """
    for config in sorted(folder.glob(f"*/{CONFIG}")):
        model = config.parent.name
        try:
            config.write_text(planned_config(config.parent, plan), encoding="utf-8")
        except (OSError, ValueError, text_format.ParseError) as error:
            raise TritonSetupError(
                f"cannot read the configuration of the model {model}: {error}"
            ) from error


def _copy_without_versions(repository: Path, models: Sequence[str], folder: Path) -> None:
    """Copy the models' configurations, and files such as labels."""
    for model in models:
        numbers = {str(number) for number in versions.versions(repository, model)}
        ignored = shutil.ignore_patterns("__pycache__", *numbers)
        shutil.copytree(repository / model, folder / model, ignore=ignored)


def is_configured(repository: Path, settings: Settings, deployed: Path) -> bool:
    """Return whether Triton's folder has the networks' configuration that the weights in a
    repository need now.
    """
    plan = plan_for_this_machine(repository, settings)
    return all(
        (deployed / model / CONFIG).read_text(encoding="utf-8")
        == planned_config(repository / model, plan)
        for model in (tensors.ENCODER, tensors.DECODER)
    )


def orchestrator_settings(repository: Path | None) -> OrchestratorSettings:
    """Return the settings in the repository's configuration of the orchestrator, without
    environment variables.

    The defaults if the repository is on another machine (None).
    """
    file = repository and repository / tensors.SEGMENT / CONFIG
    if not file or not file.is_file():  # reported by `check_repository`
        return DEFAULTS
    config = text_format.Parse(file.read_text(encoding="utf-8"), ModelConfig())
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    return OrchestratorSettings.from_parameters(parameters, {})


def export(repository: Path, plan: Plan, folder: Path) -> None:
    """Write a repository with the plan applied as plain files, to be copied to another machine or a
    storage.

    Raises:
        TritonSetupError: as `take_snapshot` and `configure`, or the target exists or cannot be
            written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".exporting-") as home:
            linked = take_snapshot(repository, Path(home))
            configure(linked, plan)
            shutil.copytree(linked, folder)
    except OSError as error:
        raise TritonSetupError(f"cannot write {folder}: {error.strerror or error}") from error


def check_repository(repository: Path, folder: Path | None = None) -> None:
    """Check that the model repository is complete; raise `TritonSetupError` if a file is missing.

    Args:
        repository: the model repository, which the message names.
        folder: folder with what was taken from it; default: the repository itself.
    """
    folder = folder or repository
    for version in versions.versions(folder) or [1]:
        if missing := versions.missing_files(folder, version):
            command = (
                "make weights" if version == 1 else f"python -m sam_onnx --model-version {version}"
            )
            file = repository / missing[0].relative_to(folder)
            raise TritonSetupError(f"{file}: no such file; `{command}` writes it")


def check_weights(folder: Path, expected: str) -> None:
    """Check that version 1 has the weights with this SHA-256.

    Raise `TritonSetupError` if it has others.
    """
    record = versions.weights_record(folder, 1)
    if record.get("sha256") != expected:
        raise TritonSetupError(
            f"MOBILE_SAM_EXPECTED_WEIGHTS: expected weights with the SHA-256 {expected}, got"
            f" {record.get('sha256', 'none')} ({record.get('name', 'no name')}): another command"
            " may have replaced the weights during this start; start again, or give each service a"
            " MOBILE_SAM_MODEL_REPOSITORY of its own"
        )


def planned_config(model_folder: Path, plan: Plan) -> str:
    """Return the text of a model's config.pbtxt for a plan, from the files in its folder.

    Raises:
        OSError: a file cannot be read.
        ParseError: a file is no configuration.
    """
    has_gpu_config = plan.gpu and model_folder.name in tensors.GPU_NETWORKS
    path = model_folder / (GPU_CONFIG if has_gpu_config else CONFIG)
    return apply_plan(model_folder.name, path.read_text(encoding="utf-8"), plan)


def apply_plan(model: str, config: str, plan: Plan) -> str:
    """Return the text of a model's config.pbtxt with the plan applied.

    Raise `ParseError` if it is not one.
    """
    parsed = text_format.Parse(config, ModelConfig())
    if model in (tensors.ENCODER, tensors.DECODER):
        _configure_network(parsed, plan.encoder if model == tensors.ENCODER else plan.decoder)
    elif model in tensors.MODELS:
        _configure_orchestrator(parsed, plan)
    return str(text_format.MessageToString(parsed))


def _configure_orchestrator(config: ModelConfig, plan: Plan) -> None:
    _set_instances(config, plan.instances[config.name], gpu=False)
    _set_parameters(
        config,
        encoder_engine=plan.encoder.engine,
        decoder_engine=plan.decoder.engine,
        decoder_batch=plan.decoder_batch,
    )
    if plan.gpu:
        _set_parameters(config, networks=GPU_NETWORKS, mask_memory_bytes=plan.mask_memory_bytes)
    # Where the backend is one of `triton_backends`, they run the decoder themselves.
    if config.name == tensors.SEGMENT_CACHED and plan.own_decoder:
        _set_own_decoder(config, plan.own_decoder)
    # Bfloat16 keeps the masks of first clicks (docs/engines.md).
    if config.name == tensors.EVERYTHING and not plan.gpu:
        _set_own_decoder(config, replace(plan.decoder, precision=plan.encoder.precision))


def _set_own_decoder(config: ModelConfig, decoder: Network) -> None:
    _set_parameters(config, decoder_backend=decoder.backend, own_decoder_engine=decoder.engine)
    if not decoder.gpu:
        _set_threads(config, decoder)
        _set_precision(config, decoder)
        return
    _set_instances(config, decoder.instances, gpu=True)
    _set_parameters(
        config,
        decoder_file=versions.GPU_NETWORK_FILE,
        decoder_batch=DEFAULTS.decoder_batch,
        mask_memory_bytes=OWN_MASKS_BYTES,
        gpu_mem_limit=decoder.memory_bytes,
        **OWN_DECODER_PARAMETERS,
    )


def _configure_network(config: ModelConfig, network: Network) -> None:
    config.backend = network.backend
    _set_instances(config, network.instances, network.gpu)
    if network.backend == "openvino" or network.gpu:
        # OpenVINO is no faster with several images. On a GPU, ONNX Runtime prepares the
        # convolutions anew whenever the number of images changes, which took up to 1.7 s
        # (docs/performance-gpu.md).
        config.ClearField("dynamic_batching")
    _set_precision(config, network)
    if network.gpu:
        _set_parameters(config, gpu_mem_limit=network.memory_bytes)
    else:
        _set_threads(config, network)
        # The watchdog runs it before callers do, and a run takes long.
        if config.name == tensors.ENCODER:
            config.ClearField("model_warmup")


def _set_precision(config: ModelConfig, network: Network) -> None:
    if network.backend == "openvino" and network.precision == "bf16":
        _set_parameters(config, HINT_BF16="YES")


def _set_threads(config: ModelConfig, network: Network) -> None:
    if network.backend == "openvino":
        _set_parameters(config, INFERENCE_NUM_THREADS=network.threads, NUM_STREAMS=1)
    else:
        _set_parameters(config, intra_op_thread_count=network.threads)


def _set_instances(config: ModelConfig, count: int, gpu: bool) -> None:
    del config.instance_group[:]
    kind = ModelInstanceGroup.KIND_GPU if gpu else ModelInstanceGroup.KIND_CPU
    config.instance_group.add(count=count, kind=kind)


def _set_parameters(config: ModelConfig, **values: str | int) -> None:
    for name, value in values.items():
        config.parameters[name].string_value = str(value)


def main(arguments: Sequence[str]) -> None:
    """Run `python -m utils.triton.repository FOLDER`: write the repository for this machine.

    Raises:
        SystemExit: the arguments are wrong (status 2), or the error that has been found.
    """
    if len(arguments) != 1:
        print("usage: python -m utils.triton.repository FOLDER", file=sys.stderr)
        sys.exit(2)
    try:
        settings = Settings.from_environment()
        repository = settings.repository_in(ROOT)
        if repository is None:
            raise SettingsError("MOBILE_SAM_MODEL_REPOSITORY: expected a source folder, got a URL")
        check_repository(repository)
        plan = plan_for_this_machine(repository, settings)
        export(repository, plan, Path(arguments[0]))
    except (SettingsError, PlanError, TritonSetupError) as error:
        sys.exit(f"error: {error}")
    print(f"{arguments[0]}: {plan}")


if __name__ == "__main__":
    main(sys.argv[1:])
