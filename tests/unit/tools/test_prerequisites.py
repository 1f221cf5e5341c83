"""Checks of the machine, and the choice of a Python."""

import sys
from pathlib import Path

import pytest

from tools import environment, prerequisites
from tools.prerequisites import InstallationError


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        ("platform.system", "Darwin", "supports only Linux on x86-64, this is Darwin on x86_64"),
        ("platform.machine", "aarch64", "supports only Linux on x86-64, this is Linux on aarch64"),
        ("platform.libc_ver", ("glibc", "2.31"), r"glibc 2\.35 .* this is 2\.31"),
    ],
)
def test_an_unsupported_platform_is_rejected_without_a_triton_on_path(
    monkeypatch, function, value, message
):
    prerequisites.check_platform()
    monkeypatch.setattr("tools.prerequisites.shutil.which", lambda _: None)
    monkeypatch.setattr(f"tools.prerequisites.{function}", lambda: value)
    with pytest.raises(InstallationError, match=message):
        prerequisites.check_platform()
    monkeypatch.setattr(
        "tools.prerequisites.shutil.which", lambda _: "/opt/tritonserver/bin/tritonserver"
    )
    prerequisites.check_platform()


@pytest.mark.parametrize("version", [(3, 9), (3, 13)], ids=["3.9", "3.13"])
def test_an_unsupported_version_of_python_is_rejected(monkeypatch, version):
    monkeypatch.setattr("tools.prerequisites.sys.version_info", version)
    with pytest.raises(InstallationError, match=r"^Python 3\.10 to 3\.12 is required, this is "):
        prerequisites.check_python()


def test_a_python_whose_shared_library_cannot_be_read_is_rejected(monkeypatch):
    monkeypatch.setattr("tools.prerequisites.shutil.which", lambda _: None)
    prerequisites.check_python()
    monkeypatch.setattr("utils.triton.installation.os.access", lambda *_: False)
    with pytest.raises(InstallationError, match=r"^no shared libpython3\.\d+\.so\.1\.0 for "):
        prerequisites.check_python()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_python_is_the_environments_then_the_newest_supported_on_path_then_one_of_uv(programs):
    newer = "import sys; sys.version_info = (3, 13); exec(sys.argv[1])"
    environment = programs / "env"
    # Not supported.
    write_program(programs / "python3.12", f'exec {sys.executable} -c "{newer}" "$2"')
    candidates = [
        (write_program(environment / "bin" / "python", "echo /env/bin/python"), "/env/bin/python"),
        (
            write_program(
                environment / "python/cpython-3.12.9-linux/bin/python", "echo /downloaded"
            ),
            "/downloaded",
        ),
        (write_program(programs / "python3.11", "echo /usr/bin/python3.11"), "/usr/bin/python3.11"),
        (write_program(programs / "python3.10", f'exec {sys.executable} "$@"'), sys.executable),
        (
            write_program(
                programs / "uv", f"echo {write_program(programs / 'managed', 'echo /managed')}"
            ),
            "/managed",
        ),
    ]
    for program, found in candidates:
        assert prerequisites.other_python(environment) == found
        program.unlink()
    assert prerequisites.other_python(environment) == ""


@pytest.mark.parametrize("name", ["other_python", "download_python"])
def test_installation_starts_over_with_another_python(monkeypatch, name):
    started: list[object] = []

    def unsupported() -> None:
        raise InstallationError("no shared library")

    def execute(*command: object) -> None:
        started.extend(command)
        raise SystemExit

    monkeypatch.setattr("tools.environment.check_python", unsupported)
    monkeypatch.setattr("tools.environment.other_python", lambda _: "")
    monkeypatch.setattr(f"tools.environment.{name}", lambda *_: "/usr/bin/python3.12")
    monkeypatch.setattr("tools.environment.os.execv", execute)
    with pytest.raises(SystemExit):
        environment.main([".venv", "cpu"])
    assert started == [
        "/usr/bin/python3.12",
        ["/usr/bin/python3.12", "-m", "tools.environment", ".venv", "cpu"],
    ]
