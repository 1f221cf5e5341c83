"""Checks of the machine before an installation or start."""

from __future__ import annotations

import socket
from collections import namedtuple

import pytest

from utils import environment
from utils.environment import EnvironmentCheckError

DiskUsage = namedtuple("DiskUsage", "total used free")


def test_this_machine_is_supported():
    environment.check_platform()


@pytest.mark.parametrize("version", [(3, 9), (3, 13)])
def test_an_unsupported_python_is_rejected(monkeypatch, version):
    monkeypatch.setattr("utils.environment.sys.version_info", version)
    with pytest.raises(EnvironmentCheckError, match=r"Python 3\.10 to 3\.12 is required"):
        environment.check_platform()


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")])
def test_an_unsupported_platform_is_rejected(monkeypatch, system, machine):
    monkeypatch.setattr("utils.environment.shutil.which", lambda _: None)
    monkeypatch.setattr("utils.environment.platform.system", lambda: system)
    monkeypatch.setattr("utils.environment.platform.machine", lambda: machine)
    with pytest.raises(EnvironmentCheckError, match=rf"supports only Linux on x86-64, this is {system} on {machine}"):
        environment.check_platform()


def test_an_old_glibc_is_rejected(monkeypatch):
    monkeypatch.setattr("utils.environment.shutil.which", lambda _: None)
    monkeypatch.setattr("utils.environment.platform.libc_ver", lambda: ("glibc", "2.31"))
    with pytest.raises(EnvironmentCheckError, match=r"glibc 2\.35 .* this is 2\.31"):
        environment.check_platform()


def test_a_triton_on_path_needs_no_wheel(monkeypatch):
    monkeypatch.setattr("utils.environment.shutil.which", lambda _: "/opt/tritonserver/bin/tritonserver")
    monkeypatch.setattr("utils.environment.platform.machine", lambda: "aarch64")
    environment.check_platform()


def test_a_port_in_use_is_a_one_line_error(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert environment.main(["check", "127.0.0.1", str(port)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: port {port} of 127.0.0.1 is in use")
    assert error.count("\n") == 1


@pytest.mark.parametrize("port", ["abc", "0", "70000", "-1", ""])
def test_an_invalid_port_is_a_one_line_error(capsys, port):
    assert environment.main(["check", "127.0.0.1", port]) == 1
    assert capsys.readouterr().err == f"error: PORT must be a number from 1 to 65535, got {port!r}\n"


def test_a_foreign_address_is_a_one_line_error(capsys):
    assert environment.main(["check", "192.0.2.1", "3000"]) == 1
    assert capsys.readouterr().err.startswith("error: cannot listen on 192.0.2.1:3000")


def test_a_full_disk_is_a_one_line_error(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("utils.installation.shutil.disk_usage", lambda _: DiskUsage(10, 10, 5_000_000))
    assert environment.main(["install", str(tmp_path / "venv"), "cpu"]) == 1
    assert capsys.readouterr().err == "error: not enough disk space: 2000 MB needed, 5 MB free\n"


def test_requirements_have_hashes_and_name_no_index():
    for file in (environment.ROOT / "requirements").glob("[!o]*.txt"):
        text = file.read_text()
        assert "://" not in text
        for line in text.splitlines():
            if line and not line.startswith((" ", "#")):
                assert "==" in line, line
                assert line.endswith("\\"), line
