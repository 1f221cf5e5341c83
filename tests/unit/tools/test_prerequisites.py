"""Checks of the machine, and the choice of a Python."""

import sys
from pathlib import Path

import pytest

from tools import environment, prerequisites
from tools.prerequisites import InstallationError


def test_this_machine_is_supported():
    prerequisites.check_platform()
    prerequisites.check_libpython()
    assert prerequisites.supported_python() == sys.executable


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")])
def test_an_unsupported_platform_is_rejected(monkeypatch, system, machine):
    monkeypatch.setattr("tools.prerequisites.shutil.which", lambda _: None)
    monkeypatch.setattr("tools.prerequisites.platform.system", lambda: system)
    monkeypatch.setattr("tools.prerequisites.platform.machine", lambda: machine)
    with pytest.raises(InstallationError, match=rf"supports only Linux on x86-64, this is {system} on {machine}"):
        prerequisites.check_platform()


def test_an_old_glibc_is_rejected(monkeypatch):
    monkeypatch.setattr("tools.prerequisites.shutil.which", lambda _: None)
    monkeypatch.setattr("tools.prerequisites.platform.libc_ver", lambda: ("glibc", "2.31"))
    with pytest.raises(InstallationError, match=r"glibc 2\.35 .* this is 2\.31"):
        prerequisites.check_platform()


def test_a_triton_on_path_needs_no_wheel(monkeypatch):
    monkeypatch.setattr("tools.prerequisites.shutil.which", lambda _: "/opt/tritonserver/bin/tritonserver")
    monkeypatch.setattr("tools.prerequisites.platform.machine", lambda: "aarch64")
    prerequisites.check_platform()


@pytest.fixture(params=[(3, 9), (3, 13)], ids=["3.9", "3.13"])
def programs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on PATH of an unsupported Python."""
    monkeypatch.setattr("tools.prerequisites.sys.version_info", request.param)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_newest_supported_python_on_path_is_used(programs):
    write_program(programs / "python3.12", "echo 'pyenv: version not installed' >&2; exit 127")
    write_program(programs / "python3.11", "echo /usr/bin/python3.11")
    write_program(programs / "python3.10", "echo /usr/bin/python3.10")
    write_program(programs / "uv", "echo /managed/python3.12")
    assert prerequisites.supported_python() == "/usr/bin/python3.11"


def test_python_of_uv_is_used(programs):
    write_program(programs / "uv", 'test "$5" = 3.11 && echo /managed/python3.11')
    assert prerequisites.supported_python() == "/managed/python3.11"


def test_a_missing_python_is_a_one_line_error_with_a_remedy(programs):
    write_program(programs / "uv", "echo 'error: no interpreter found' >&2; exit 2")
    with pytest.raises(
        InstallationError, match=r"^Python 3\.10 to 3\.12 is required, .*`uv python install 3\.12`[^\n]*$"
    ):
        prerequisites.supported_python()


def test_installation_starts_over_with_the_supported_python(programs, monkeypatch):
    started: list[object] = []

    def execute(*command: object) -> None:
        started.extend(command)
        raise SystemExit

    write_program(programs / "python3.12", "echo /usr/bin/python3.12")
    monkeypatch.setattr("tools.environment.os.execv", execute)
    with pytest.raises(SystemExit):
        environment.main([".venv", "cpu"])
    assert started == ["/usr/bin/python3.12", ["/usr/bin/python3.12", "-m", "tools.environment", ".venv", "cpu"]]
