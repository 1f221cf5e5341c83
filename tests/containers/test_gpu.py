"""The `gpu` image on an imitation of NVIDIA's container, on a machine without a GPU."""

from pathlib import Path

import pytest

from benchmarks import gpu_plans
from tests.containers.docker import click, container, docker, documented, run, step, stop

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

NVIDIA, PYTHON = "mobile-sam-test-nvidia", "mobile-sam-test-python312"
PYTHONS = Path.home() / ".pyenv" / "versions"
FACTS = """
import os, sys
from importlib import metadata
from pathlib import Path
from utils.triton import installation, machine
found = installation.find_installation()
(triton,) = [each for each in Path("/proc").glob("[1-9]*") if (each / "comm").read_text().strip() == "tritonserver"]
print(os.readlink(triton / "exe"), found.binary, found.backends)
print(os.getuid(), sys.prefix)
print((triton / "wchan").read_text() != "0")  # the watchdog reads for what a start of Triton waits
print({"nvidia-pytriton", "onnxruntime-gpu"} & {each.name for each in metadata.distributions()})
print(machine.can_use_gpus(), machine.gpu_memories())
"""
EXPECTED = """\
/opt/tritonserver/bin/tritonserver /opt/tritonserver/bin/tritonserver /opt/tritonserver/backends
10001 /opt/venv
True
set()
True ()"""


@pytest.fixture
def python(base: str) -> str:
    """Return an image with Python 3.12, as NVIDIA's container has, if pyenv has one; else with
    Debian's Python 3.11.
    """
    versions = sorted(PYTHONS.glob("3.12.*"))
    if not versions:
        return base
    with container(["docker", "create", base, "true"]) as name:
        docker("cp", f"{versions[-1]}/.", f"{name}:/usr/local")
        docker("commit", name, PYTHON)
    return PYTHON


def test_gpu_image_uses_nvidias_triton(python, build_options, port, builtin_repository, tmp_path):
    with step(f"imitation of NVIDIA's container on {python}"):
        docker(
            "build",
            *build_options,
            f"--build-arg=BASE={python}",
            "--file=tests/containers/nvidia.Dockerfile",
            f"--tag={NVIDIA}",
            ".",
        )
    with step("the gpu image"):
        *command, context = documented("docker build --build-arg HARDWARE=gpu")
        run(*command, *build_options, f"--build-arg=GPU_BASE={NVIDIA}", context)
    *start, _ = documented("docker run --detach", port)
    with step("a click and a stop"), container([*start, command[-1]]) as name:
        assert click(port) == "official"
        assert docker("exec", name, "python", "-c", FACTS) == EXPECTED
        assert "encoder: onnxruntime f32" in docker("logs", name)
        stop(name)

    # With the plan for a GPU, but with instances on the CPU.
    repository = gpu_plans.write(builtin_repository, tmp_path / "models", on_gpu=False)
    settings = ["MOBILE_SAM_MODEL_REPOSITORY=/cache/models", "MOBILE_SAM_MODEL_CONTROL_MODE=poll"]
    create = [word for word in start if word != "--detach"]
    create[create.index("run")] = "create"
    create += [f"--env={setting}" for setting in settings]
    with step("a click with the networks of a GPU"), container([*create, command[-1]]) as name:
        docker("cp", str(repository), f"{name}:/cache/models")
        docker("start", name)
        assert click(port) == "builtin"
        stop(name)
