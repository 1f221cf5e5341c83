"""Installation of locked requirements with fakes of pip and uv; test_downloaded_python.py runs
the real ones.
"""

import fcntl
import re
import subprocess
import threading
import time
from collections import namedtuple
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tools import environment
from tools.prerequisites import InstallationError

DiskUsage = namedtuple("DiskUsage", "total used free")
PIP_INSTALL = "python -m pip install --no-deps --disable-pip-version-check"


def test_locked_requirements_have_hashes_and_name_no_index():
    files = list((environment.ROOT / "requirements").iterdir())
    assert {"uv.txt", "cpu.txt", "gpu.txt", "dev.txt"} <= {file.name for file in files}
    for file in files:
        assert "://" not in file.read_text()
        locked = re.findall(
            r"^\S+==.*((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", file.read_text(), re.MULTILINE
        )
        assert locked, file
        assert len(locked) == len(re.findall(r"^\S", file.read_text(), re.MULTILINE)), file


class Commands:
    """Stand-in for `subprocess.run` with pip and uv, which fails for commands that contain one
    of `failing`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.configured = folder, ""
        self.failing: tuple[str, ...] = ()
        self.calls: list[str] = []

    def run(self, command: list[str], env: dict[str, str], stdout: Any = None, **_: object) -> Any:
        call = " ".join([Path(command[0]).name, *command[1:]])
        if call.endswith("pip config list"):
            return subprocess.CompletedProcess(command, 0, self.configured)
        self.calls.append(
            f"{call} index={env.get('UV_DEFAULT_INDEX')}" if call.startswith("uv") else call
        )
        stdout.writelines(f"{number}\n" for number in range(1, 101))
        return subprocess.CompletedProcess(command, any(words in call for words in self.failing))

    def taken(self) -> list[str]:
        """Return the commands since the last call."""
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def fake(monkeypatch, tmp_path) -> Commands:
    """Fake commands, an empty environment, and a root with tiny `requirements/` and `client/`."""
    root = tmp_path / "root"
    (root / "requirements").mkdir(parents=True)
    for name in ("uv", "cpu", "client"):
        (root / "requirements" / f"{name}.txt").write_text(f"{name}==1\n")
    (root / "client").mkdir()
    (root / "client" / "pyproject.toml").touch()
    fake = Commands(tmp_path / "env")
    monkeypatch.setattr(environment, "ROOT", root)
    monkeypatch.setattr("tools.environment.venv.create", lambda *_, **__: None)
    monkeypatch.setattr("tools.environment.subprocess.run", fake.run)
    return fake


def test_pip_installs_uv_and_uv_installs_the_rest_and_changes(fake, capsys):
    fake.configured = "global.index-url='https://me:secret@one.example/simple'"
    environment.install(fake.folder, ["cpu", "client"])
    pip, files, project = fake.taken()
    requirements = environment.ROOT / "requirements"
    assert pip == f"{PIP_INSTALL} --require-hashes -r {requirements}/uv.txt"
    assert files.startswith("uv pip install --no-config --no-deps --python ")
    assert " --compile-bytecode " in files
    assert f" --require-hashes -r {requirements}/cpu.txt -r {requirements}/client.txt " in files
    assert f" --no-build-isolation --editable {environment.ROOT}/client " in project
    assert files.endswith(" index=https://me:secret@one.example/simple")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(rf"environment {fake.folder}: \d+ s\n", printed.err)
    for changed in ("requirements/client.txt", "client/pyproject.toml"):
        environment.install(fake.folder, ["cpu", "client"])  # nothing has changed
        assert fake.taken() == []
        (environment.ROOT / changed).write_text("client==2\n")
        environment.install(fake.folder, ["cpu", "client"])
        assert [call.partition(" install")[0] for call in fake.taken()] == [
            "python -m pip",
            "uv pip",
            "uv pip",
        ]


@pytest.mark.parametrize(
    "failing", ["uv.txt", "uv pip install"], ids=["uv cannot be installed", "uv fails"]
)
def test_pip_installs_where_uv_cannot(fake, failing, capsys):
    fake.failing = (failing,)
    environment.install(fake.folder, ["cpu", "client"])
    requirements = environment.ROOT / "requirements"
    assert fake.taken()[-2:] == [
        f"{PIP_INSTALL} --require-hashes -r {requirements}/cpu.txt -r {requirements}/client.txt",
        f"{PIP_INSTALL} --no-build-isolation --editable {environment.ROOT}/client",
    ]
    assert (
        capsys.readouterr().out
        == "uv cannot install the packages: pip installs them, which takes longer\n"
    )


def test_failed_installation_shows_the_last_line_of_its_output_and_the_next_run_reinstalls(
    fake, capsys
):
    fake.failing = ("uv pip install", "cpu.txt")
    with pytest.raises(
        InstallationError,
        match=r"could not install cpu\.txt: 100 \(all output: .*env/install\.log\)",
    ):
        environment.install(fake.folder, ["cpu"])
    assert "99" not in capsys.readouterr().err
    assert "\n80\n81\n" in (fake.folder / "install.log").read_text()
    assert "--ignore-installed" not in fake.taken()[-1]
    fake.failing = ("uv pip install",)
    environment.install(fake.folder, ["cpu"])
    uv, by_uv, by_pip = fake.taken()
    assert "--reinstall" in by_uv
    assert "--compile-bytecode" not in by_uv  # only with the client, beside which a service runs
    assert "--ignore-installed" in uv
    assert "--ignore-installed" in by_pip


def test_an_unreadable_pip_configuration_is_a_one_line_error(fake, monkeypatch):
    broken = subprocess.CalledProcessError(3, "pip", stderr="words\nERROR: pip.conf is broken\n")
    monkeypatch.setattr("tools.environment.subprocess.run", Mock(side_effect=broken))
    with pytest.raises(
        InstallationError, match=r"bin/python -m pip config list: ERROR: pip\.conf is broken$"
    ):
        environment.install(fake.folder, ["cpu"])


def test_a_missing_venv_module_is_a_one_line_error(fake, monkeypatch):
    monkeypatch.setattr(
        "tools.environment.venv.create",
        Mock(side_effect=subprocess.CalledProcessError(1, "ensurepip")),
    )
    with pytest.raises(InstallationError, match=r"CalledProcessError.*install python3\.\d+-venv$"):
        environment.install(fake.folder, ["cpu"])


def test_a_second_process_waits_for_the_first(fake, capsys):
    fake.folder.mkdir()
    with (fake.folder / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=environment.install, args=(fake.folder, ["cpu"]))
        second.start()
        printed = ""
        while "waiting" not in printed:
            time.sleep(0.01)
            printed += capsys.readouterr().out
        assert fake.taken() == []
        file, content = environment.stamp(fake.folder, ["cpu"])
        file.write_text(content)
    second.join()
    assert printed == f"waiting for another installation into {fake.folder}\n"
    assert fake.taken() == []


def test_a_full_disk_and_an_unwritable_folder_are_one_line_errors(
    fake, monkeypatch, capsys, tmp_path
):
    (tmp_path / "file").touch()
    assert environment.main([str(tmp_path / "file" / "env"), "cpu"]) == 1
    monkeypatch.setattr(
        "tools.environment.shutil.disk_usage", lambda _: DiskUsage(10, 10, 5_000_000)
    )
    assert environment.main([str(fake.folder), "cpu"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: {tmp_path}/file/env: Not a directory",
        "error: not enough disk space: 2000 MB needed, 5 MB free",
    ]


def test_an_interrupt_prints_one_line_and_the_next_run_continues(fake, monkeypatch, capsys):
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(environment, "_run", interrupt)
        assert environment.main([str(fake.folder), "cpu"]) == 130
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == "error: interrupted: run the same `make` again to continue"
    )
    assert environment.main([str(fake.folder), "cpu"]) == 0
    assert " --reinstall " in fake.taken()[-1]


def test_python_that_cannot_be_downloaded_is_a_one_line_error_and_nothing_half_made_stays(
    fake, monkeypatch
):
    monkeypatch.setattr(environment, "other_python", lambda _: "")
    with pytest.raises(
        InstallationError,
        match=r"^3\.13; uv cannot download Python 3\.12 \(see .*\): put it on PATH",
    ):
        environment.download_python(fake.folder, InstallationError("3.13"))
    assert sorted(path.name for path in fake.folder.iterdir()) == ["install.lock", "install.log"]
