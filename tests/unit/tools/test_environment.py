"""Installation of locked requirements with fakes of pip and uv and in a real environment."""

import base64
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from importlib import metadata
from pathlib import Path

import pytest

from tools import environment
from tools.prerequisites import InstallationError

DiskUsage = namedtuple("DiskUsage", "total used free")

PYTHON = """\
#!/bin/sh
here=$(dirname "$0")
case "$3" in
    config) cat "$here/config"; exit ;;
esac
echo "$*" >> "$here/calls"
case "$*" in
    *uv.txt) cat "$here/uv-txt-output"; exit "$(cat "$here/uv-txt-status")" ;;
esac
seq 100
exit "$(cat "$here/status")"
"""
UV = """\
#!/bin/sh
here=$(dirname "$0")
echo "uv $* index=$UV_DEFAULT_INDEX no-cache=$UV_NO_CACHE" >> "$here/calls"
seq 100
exit "$(cat "$here/status")"
"""


def test_requirements_have_hashes_and_name_no_index():
    files = list((environment.ROOT / "requirements").iterdir())
    assert {"cpu.txt", "gpu.txt", "dev.txt"} <= {file.name for file in files}
    for file in files:
        text = file.read_text()
        assert "://" not in text
        for line in text.splitlines():
            assert re.fullmatch(r"[^ ]+==[^ ]+.* \\|    --hash=sha256:\w+( \\)?", line), line


# ---- Fakes of pip and uv ----


class FakeEnvironment:
    """Environment with fake pip and uv that record their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"

    def create(self, *_: object, **__: object) -> None:
        """Create the environment; replaces `venv.create`."""
        self.bin.mkdir(parents=True, exist_ok=True)
        for name, content in (("python", PYTHON), ("uv", UV), ("pip", "")):
            (self.bin / name).write_text(content)
            (self.bin / name).chmod(0o755)
        self.set(config="", status="0", uv_txt_output="", uv_txt_status="0")

    def set(self, **contents: str) -> None:
        """Set pip's configuration, the exit status of pip and uv, and those of pip's installation of uv."""
        for name, content in contents.items():
            (self.bin / name.replace("_", "-")).write_text(content)

    def calls(self) -> list[str]:
        """Return the commands since the last call."""
        file = self.bin / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.write_text("")
        return lines


@pytest.fixture
def fake(monkeypatch, tmp_path) -> FakeEnvironment:
    """An existing environment, and a root with tiny `requirements/` and `client/`."""
    root = tmp_path / "root"
    (root / "requirements").mkdir(parents=True)
    for name in ("uv", "cpu", "client"):
        (root / "requirements" / f"{name}.txt").write_text(f"{name}==1\n")
    (root / "client").mkdir()
    (root / "client" / "pyproject.toml").touch()
    monkeypatch.setattr(environment, "ROOT", root)
    fake = FakeEnvironment(tmp_path / "env")
    monkeypatch.setattr("tools.environment.venv.create", fake.create)
    fake.create()
    return fake


def test_missing_environment_is_created_once(fake, capsys):
    (fake.bin / "pip").unlink()
    environment.install(fake.folder, ["cpu", "client"])
    assert (fake.bin / "pip").exists()
    assert re.fullmatch(rf"environment {fake.folder}: \d s\n", capsys.readouterr().err)
    fake.calls()
    environment.install(fake.folder, ["cpu", "client"])
    assert fake.calls() == []
    assert capsys.readouterr() == ("", "")


def test_pip_installs_uv_and_uv_installs_the_rest(fake):
    fake.set(config="global.index-url='https://me:secret@one.example/simple'\n")
    environment.install(fake.folder, ["cpu", "client"])
    pip, files, project = fake.calls()
    requirements = environment.ROOT / "requirements"
    assert pip == f"-m pip install --no-deps --disable-pip-version-check --require-hashes -r {requirements}/uv.txt"
    assert files.startswith("uv pip install --no-config --compile-bytecode --no-deps --python ")
    assert f" --require-hashes -r {requirements}/cpu.txt -r {requirements}/client.txt " in files
    assert f" --no-build-isolation --editable {environment.ROOT}/client " in project
    assert " index=https://me:secret@one.example/simple " in files


@pytest.mark.parametrize("changed", ["requirements/client.txt", "client/pyproject.toml"])
def test_changed_requirements_do_not_reinstall_uv(fake, changed):
    environment.install(fake.folder, ["cpu", "client"])
    fake.calls()
    (environment.ROOT / changed).write_text("client==2\n")
    environment.install(fake.folder, ["cpu", "client"])
    assert [call[:14] for call in fake.calls()] == ["uv pip install"] * 2


@pytest.mark.parametrize(
    ("config", "option"),
    [("", "--reinstall"), ("global.constraint='/etc/pip/constraint.txt'\n", "--ignore-installed")],
    ids=["uv", "pip"],
)
def test_failed_installation_shows_its_output_and_the_next_run_reinstalls(fake, config, option, capsys):
    fake.set(config=config, status="1")
    with pytest.raises(InstallationError, match=r"could not install cpu\.txt: all output is in .*env/install\.log"):
        environment.install(fake.folder, ["cpu"])
    assert capsys.readouterr().err.splitlines() == [str(number) for number in range(81, 101)]
    assert "\n80\n81\n" in (fake.folder / "install.log").read_text()
    assert option not in fake.calls()[-1]
    fake.set(status="0")
    environment.install(fake.folder, ["cpu"])
    assert option in fake.calls()[-1]
    environment.install(fake.folder, ["cpu"])
    assert fake.calls() == []


def test_pip_installs_if_uv_does_not_support_an_option(fake, capsys):
    fake.set(config="global.constraint='/etc/pip/constraint.txt'\n")
    environment.install(fake.folder, ["cpu", "client"])
    pip = "-m pip install --no-deps --disable-pip-version-check"
    requirements = environment.ROOT / "requirements"
    assert fake.calls() == [
        f"{pip} --require-hashes -r {requirements}/cpu.txt -r {requirements}/client.txt",
        f"{pip} --no-build-isolation --editable {environment.ROOT}/client",
    ]
    assert capsys.readouterr().out == (
        "uv does not support the option constraint of pip's configuration: "
        "pip installs the packages, which takes longer\n"
    )


NO_UV = "ERROR: No matching distribution found for uv==1\n"


def test_pip_installs_if_the_index_lacks_uv(fake, capsys):
    fake.set(uv_txt_output=NO_UV, uv_txt_status="1")
    environment.install(fake.folder, ["cpu"])
    assert capsys.readouterr().out == "pip's index does not have uv: pip installs the packages, which takes longer\n"
    assert fake.calls()[-1].startswith("-m pip install ")


def test_an_unreachable_index_is_an_error(fake, capsys):
    fake.set(uv_txt_output=f"WARNING: Retrying (Retry(total=0)) after connection broken\n{NO_UV}", uv_txt_status="1")
    with pytest.raises(InstallationError, match=r"could not install uv\.txt: "):
        environment.install(fake.folder, ["cpu"])
    assert NO_UV in capsys.readouterr().err
    assert len(fake.calls()) == 1


def test_an_unwritable_cache_is_not_used(fake, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "file" / "uv"))
    environment.install(fake.folder, ["cpu"])
    assert fake.calls()[-1].endswith(" no-cache=1")


def test_an_unreadable_pip_configuration_is_a_one_line_error(fake):
    fake.set(python="#!/bin/sh\necho words >&2; echo 'ERROR: pip.conf is broken' >&2; exit 3\n")
    with pytest.raises(InstallationError, match=r"bin/python -m pip config list: ERROR: pip\.conf is broken$"):
        environment.install(fake.folder, ["cpu"])
    (fake.bin / "python").unlink()
    with pytest.raises(InstallationError, match=r"bin/python -m pip config list: .*No such file"):
        environment.install(fake.folder, ["cpu"])


@pytest.mark.parametrize("error", [OSError("no"), subprocess.CalledProcessError(1, "ensurepip")])
def test_a_missing_venv_module_is_a_one_line_error(fake, monkeypatch, error):
    def create(*_: object, **__: object) -> None:
        raise error

    (fake.bin / "pip").unlink()
    monkeypatch.setattr("tools.environment.venv.create", create)
    with pytest.raises(InstallationError, match=rf"{type(error).__name__}.*install python3\.\d+-venv$"):
        environment.install(fake.folder, ["cpu"])


def test_a_second_process_waits_for_the_first(fake, capsys):
    with (fake.folder / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=environment.install, args=(fake.folder, ["cpu"]))
        second.start()
        printed = ""
        while "waiting" not in printed:
            time.sleep(0.01)
            printed += capsys.readouterr().out
        assert fake.calls() == []
        environment.Stamp(fake.folder, ["cpu"]).finish()
    second.join()
    assert printed == f"waiting for another installation into {fake.folder}\n"
    assert fake.calls() == []


def test_a_full_disk_is_a_one_line_error(fake, monkeypatch, capsys):
    monkeypatch.setattr("tools.environment.shutil.disk_usage", lambda _: DiskUsage(10, 10, 5_000_000))
    assert environment.main([str(fake.folder), "cpu"]) == 1
    assert capsys.readouterr().err == "error: not enough disk space: 2000 MB needed, 5 MB free\n"


def test_a_folder_that_cannot_be_written_is_a_one_line_error(fake, capsys, tmp_path):
    (tmp_path / "file").touch()
    assert environment.main([str(tmp_path / "file" / "env"), "cpu"]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/file/env: Not a directory\n"


def test_an_interrupt_prints_one_line_and_the_next_run_continues(fake, monkeypatch, capsys):
    def interrupt(_: object, command: list[str], __: object) -> bool:
        if command[0].endswith("uv"):
            raise KeyboardInterrupt
        return True

    with monkeypatch.context() as patch:
        patch.setattr("tools.environment.Log.record", interrupt)
        assert environment.main([str(fake.folder), "cpu"]) == 130
    assert capsys.readouterr().err == "error: interrupted: run the same `make` again to continue\n"
    assert environment.main([str(fake.folder), "cpu"]) == 0
    assert " --reinstall " in fake.calls()[-1]


# ---- A real environment without a network ----


def write_wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> str:
    """Write a wheel; return its line in a requirements file."""
    information = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{information}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{information}/RECORD,,\n"
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**files, f"{information}/RECORD": record.encode()}.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16  # executable
            archive.writestr(entry, content)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with wheels and locks of uv and tiny packages."""
    program = Path(sys.executable).with_name("uv")
    if not program.exists():
        pytest.skip(f"no uv in this environment ({program}): `make env` installs it")
    root = tmp_path_factory.mktemp("real")
    wheels, locks = root / "wheels", root / "requirements"
    wheels.mkdir()
    locks.mkdir()
    version = metadata.version("uv")
    uv = {f"uv-{version}.data/scripts/uv": program.read_bytes()}
    (locks / "uv.txt").write_text(write_wheel(wheels, "uv", version, uv))
    one = write_wheel(wheels, "tiny_one", "1.0", {"tiny_one.py": b"VALUE = 1\n"})
    two = write_wheel(wheels, "tiny_two", "1.0", {"tiny_two.py": b"VALUE = 2\n"})
    (locks / "tiny.txt").write_text(one + two)
    newer = write_wheel(wheels, "tiny_one", "2.0", {"tiny_one.py": b"VALUE = 10\n"})
    (locks / "newer.txt").write_text(newer)
    (locks / "false.txt").write_text(re.sub("[0-9a-f]{64}", "0" * 64, newer))
    return root


@pytest.fixture
def offline(real: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root, with pip configured to use only its wheels."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    (real / "pip.conf").write_text(
        f"[global]\nfind-links =\n    {real}/wheels\n    {real}/missing\n[install]\nno-index = yes\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(real / "pip.conf"))
    monkeypatch.setenv("UV_CACHE_DIR", str(real / "cache"))
    monkeypatch.setattr(environment, "ROOT", real)
    return real


def values(folder: Path) -> str:
    """Return the values of the tiny packages in an environment."""
    code = "import tiny_one, tiny_two; print(tiny_one.VALUE, tiny_two.VALUE)"
    return subprocess.run([folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=True).stdout


def test_real_uv_installs_updates_repairs_and_checks_hashes(offline, capfd):
    folder = offline / "env"
    environment.install(folder, ["tiny"])
    assert values(folder) == "1 2\n"

    with pytest.raises(InstallationError, match=r"false\.txt"):
        environment.install(folder, ["false"])
    assert "Hash mismatch" in capfd.readouterr().err
    assert values(folder) == "1 2\n"

    environment.install(folder, ["newer"])
    assert values(folder) == "10 2\n"

    # Like after a kill: the package is listed, but its module is missing.
    environment.Stamp(folder, ["newer"]).begin()
    next(folder.rglob("tiny_one.py")).unlink()
    environment.install(folder, ["newer"])
    assert values(folder) == "10 2\n"
