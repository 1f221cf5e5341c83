"""The Makefile's variables, and the commands that they become. `make -n` runs none of them."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return what `make -n` prints, without the variables of a `make` that runs the tests."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MOBILE_SAM_"))
    }
    command = ["make", "-n", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**variables, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("prot=3950", "prot: unknown variable; did you mean PORT"),
        ("port=3950", "port: unknown variable; did you mean PORT"),
        ("WEIGTHS=official", "WEIGTHS: unknown variable; did you mean WEIGHTS"),
        ("BUILDARGS=A=b", "BUILDARGS: unknown variable; did you mean BUILD_ARGS"),
        ("xyzzy=1 2 3", "xyzzy: expected one of ANNOTATORS, "),
    ],
)
def test_a_misspelt_variable_ends_make_with_the_closest_name(variable, message):
    ended = make("serve", variable)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "bentoml" not in ended.stdout


def test_all_variables_and_the_services_settings_are_accepted():
    text = (ROOT / "Makefile").read_text()
    lines = [line.split(" ?=")[0] for line in text.splitlines() if " ?=" in line]
    assert len(lines) > 15
    given = [f"{name}=1" for name in lines if name not in ("HARDWARE", "PYTHON", "VENV")]
    ended = make(
        "serve", *given, "HARDWARE=cpu", "PYTHON=python3", "VENV=.venv", "MOBILE_SAM_ENGINE=auto"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "bentoml serve service.py:svc --host 1 --port 1" in ended.stdout


def test_serve_expects_the_weights_that_it_has_written_unless_the_service_reads_another_repository():
    expected = 'export MOBILE_SAM_EXPECTED_WEIGHTS="${MOBILE_SAM_EXPECTED_WEIGHTS:-$sha256}"'
    assert expected in make("serve").stdout
    assert "EXPECTED" not in make("serve", MOBILE_SAM_MODEL_REPOSITORY="s3://bucket/models").stdout


def test_build_arguments_and_options_reach_the_builder():
    printed = make(
        "image", "BUILD_ARGS=HF_ENDPOINT=https://mirror.example/a&b --no-cache", "WEIGHTS=official"
    ).stdout
    arguments = (
        "--build-arg 'HF_ENDPOINT=https://mirror.example/a&b' '--no-cache' --tag mobile-sam-triton:"
    )
    assert f'--build-arg WEIGHTS="official" {arguments}' in printed
    assert '--build-arg WEIGHTS="auto"  --tag' in make("image").stdout
