"""Checks of the machine, and the choice of a Python."""

import sys
from pathlib import Path

import pytest

from tools import environment, prerequisites
from tools.prerequisites import InstallationError


def test_this_machine_is_supported():
    prerequisites.check_platform()
    prerequisites.check_python()


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


@pytest.mark.parametrize("version", [(3, 9), (3, 13)], ids=["3.9", "3.13"])
def test_an_unsupported_version_of_python_is_rejected(monkeypatch, version):
    monkeypatch.setattr("tools.prerequisites.sys.version_info", version)
    with pytest.raises(InstallationError, match=r"^Python 3\.10 to 3\.12 is required, this is "):
        prerequisites.check_python()


def test_a_python_without_shared_library_is_rejected(monkeypatch):
    monkeypatch.setattr("tools.prerequisites.shutil.which", lambda _: None)
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


def test_python_in_the_environment_is_used_first(programs):
    environment = programs / "env"
    write_program(programs / "python3.12", "echo /usr/bin/python3.12")
    write_program(environment / "python" / "cpython-3.12.9-linux-x86_64-gnu" / "bin" / "python", "echo /downloaded")
    assert prerequisites.other_python(environment) == "/downloaded"
    write_program(environment / "bin" / "python", "echo /env/bin/python")
    assert prerequisites.other_python(environment) == "/env/bin/python"


def test_newest_supported_python_on_path_is_used(programs):
    write_program(programs / "python3.12", "echo 'pyenv: version not installed' >&2; exit 127")
    write_program(programs / "python3.11", "echo /usr/bin/python3.11")
    write_program(programs / "python3.10", "echo /usr/bin/python3.10")
    write_program(programs / "uv", f"echo {write_program(programs / 'managed', 'echo /managed')}")
    assert prerequisites.other_python(programs / "env") == "/usr/bin/python3.11"


def test_newest_supported_python_of_uv_is_used(programs):
    write_program(programs / "3.12", "exit 1")
    write_program(programs / "3.11", "echo /managed/3.11")
    write_program(programs / "uv", f'test "$5" != 3.10 && echo {programs}/$5')
    assert prerequisites.other_python(programs / "env") == "/managed/3.11"


def test_only_a_supported_python_is_used(programs):
    newer = "import sys; sys.version_info = (3, 13); exec(sys.argv[1])"
    write_program(programs / "python3.12", f'exec {sys.executable} -c "{newer}" "$2"')
    assert prerequisites.other_python(programs / "env") == ""
    write_program(programs / "python3.11", f'exec {sys.executable} "$@"')
    assert prerequisites.other_python(programs / "env") == sys.executable


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
    assert started == ["/usr/bin/python3.12", ["/usr/bin/python3.12", "-m", "tools.environment", ".venv", "cpu"]]
