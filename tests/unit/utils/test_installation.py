"""Installation of locked requirements, with fakes of pip and uv and with a real environment."""

from __future__ import annotations

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
from importlib import metadata
from pathlib import Path

import pytest

from utils import environment, installation
from utils.installation import InstallationError

PYTHON = """\
#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case "$3" in
    config) cat "$here/config" ;;
    install) cat "$here/pip-output"; exit "$(cat "$here/pip-status")" ;;
esac
"""
UV = """\
#!/bin/sh
here=$(dirname "$0")
echo "uv $* index=$UV_DEFAULT_INDEX no-cache=$UV_NO_CACHE" >> "$here/calls"
cat "$here/uv-output"; exit "$(cat "$here/uv-status")"
"""


class FakeEnvironment:
    """Environment with fake pip and uv that record their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"

    def create(self, *_: object, **__: object) -> None:
        """Create the environment; replaces `venv.create`."""
        self.bin.mkdir(parents=True)
        for name, content in (("python", PYTHON), ("uv", UV), ("pip", "")):
            (self.bin / name).write_text(content)
            (self.bin / name).chmod(0o755)
        self.set(config="", pip_output="", pip_status="0", uv_output="Installed 2 packages in 1ms\n", uv_status="0")

    def set(self, **contents: str) -> None:
        """Set the output and exit status of pip and uv."""
        for name, content in contents.items():
            (self.bin / name.replace("_", "-")).write_text(content)

    def calls(self) -> list[str]:
        """Return the commands since the last call."""
        file = self.bin / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.write_text("")
        return [line for line in lines if line != "-m pip config list"]


@pytest.fixture
def fake(monkeypatch, tmp_path) -> FakeEnvironment:
    """An existing environment, and a root with tiny `requirements/` and `client/`."""
    root = tmp_path / "root"
    (root / "requirements").mkdir(parents=True)
    for name in ("uv", "cpu", "client", "dev"):
        (root / "requirements" / f"{name}.txt").write_text(f"{name}==1\n")
    (root / "client").mkdir()
    (root / "client" / "pyproject.toml").touch()
    monkeypatch.setattr(installation, "ROOT", root)
    fake = FakeEnvironment(tmp_path / "env")
    monkeypatch.setattr("utils.installation.venv.create", fake.create)
    fake.create()
    return fake


def steps(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the printed lines without durations."""
    return re.sub(r" in \d+ s\b", "", capsys.readouterr().out).splitlines()


def test_install_creates_the_environment_and_prints_each_step(fake, capsys):
    for file in fake.bin.iterdir():
        file.unlink()
    fake.bin.rmdir()
    installation.install(fake.folder, ["cpu"])
    assert steps(capsys) == [
        f"environment: {fake.folder} created with Python {'.'.join(map(str, sys.version_info[:3]))}",
        "environment: uv installed",
        f"environment: 2 packages installed (log: {fake.folder}/install.log)",
    ]


def test_pip_installs_uv_and_uv_installs_the_rest(fake):
    fake.set(config="global.index-url='https://me:secret@one.example/simple'\n")
    installation.install(fake.folder, ["cpu", "client"])
    pip, files, project = fake.calls()
    root = installation.ROOT
    assert pip == f"-m pip install --no-deps --disable-pip-version-check -r {root}/requirements/uv.txt"
    assert files.startswith("uv pip install --no-config --no-deps ")
    assert f" --python {fake.bin}/python --require-hashes " in files
    assert f" -r {root}/requirements/cpu.txt -r {root}/requirements/client.txt " in files
    assert f" --offline --no-progress --no-build-isolation --editable {root}/client " in project
    assert " index=https://me:secret@one.example/simple " in files
    log = (fake.folder / "install.log").read_text()
    assert "Installed 2 packages in 1ms\n" in log
    assert "secret" not in log


def test_current_environment_is_not_changed(fake, capsys):
    installation.install(fake.folder, ["cpu", "client"])
    fake.calls()
    capsys.readouterr()
    installation.install(fake.folder, ["cpu", "client"])
    assert fake.calls() == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("changed", ["requirements/client.txt", "client/pyproject.toml"])
def test_changed_requirements_do_not_reinstall_uv(fake, capsys, changed):
    installation.install(fake.folder, ["cpu", "client"])
    fake.calls()
    capsys.readouterr()
    (installation.ROOT / changed).write_text("client==2\n")
    fake.set(uv_output="Checked 2 packages in 1ms\n")
    installation.install(fake.folder, ["cpu", "client"])
    assert [call[:14] for call in fake.calls()] == ["uv pip install"] * 2
    assert steps(capsys) == [f"environment: no packages installed (log: {fake.folder}/install.log)"]


def test_uv_failure_prints_output_and_the_next_run_reinstalls(fake, capsys):
    fake.set(uv_output="".join(f"line {number}\n" for number in range(50)), uv_status="2")
    with pytest.raises(
        InstallationError, match=r"could not install requirements/cpu\.txt: .* run the same `make` again"
    ):
        installation.install(fake.folder, ["cpu"])
    assert capsys.readouterr().err == "".join(f"line {number}\n" for number in range(30, 50))
    assert "--reinstall" not in "".join(fake.calls())
    fake.set(uv_status="0")
    installation.install(fake.folder, ["cpu"])
    assert [" --reinstall " in call for call in fake.calls()] == [True]
    installation.install(fake.folder, ["cpu"])
    assert fake.calls() == []


def test_pip_installs_if_uv_does_not_support_an_option(fake, capsys):
    fake.set(config="global.constraint='/etc/pip/constraint.txt'\n")
    installation.install(fake.folder, ["cpu", "client"])
    pip = "-m pip install --no-deps --disable-pip-version-check"
    root = installation.ROOT
    assert fake.calls() == [
        f"{pip} -r {root}/requirements/cpu.txt",
        f"{pip} -r {root}/requirements/client.txt",
        f"{pip} --no-build-isolation --editable {root}/client",
    ]
    assert steps(capsys) == [
        "environment: uv does not support the option constraint of pip's configuration: "
        "pip installs the packages, which takes longer",
        "environment: requirements/cpu.txt installed",
        "environment: requirements/client.txt installed",
        "environment: client installed",
    ]
    installation.install(fake.folder, ["cpu", "client"])
    assert fake.calls() == []


def test_pip_reinstalls_after_a_failure(fake):
    fake.set(config="global.constraint='/etc/pip/constraint.txt'\n", pip_status="1")
    for _ in range(2):
        with pytest.raises(InstallationError, match=r"could not install requirements/cpu\.txt: "):
            installation.install(fake.folder, ["cpu", "client"])
    assert ["--ignore-installed" in call for call in fake.calls()] == [False, True]


NO_UV = "ERROR: No matching distribution found for uv==1\n"


def test_pip_installs_if_the_index_lacks_uv(fake, capsys):
    # The fake pip fails only for uv.
    script = (
        (fake.bin / "python").read_text().replace("    install)", "    install) case $* in *cpu.txt) exit 0;; esac;")
    )
    fake.set(python=script, pip_output=NO_UV, pip_status="1")
    installation.install(fake.folder, ["cpu"])
    assert steps(capsys) == [
        "environment: pip's index does not have uv: pip installs the packages, which takes longer",
        "environment: requirements/cpu.txt installed",
    ]
    assert not [call for call in fake.calls() if call.startswith("uv ")]


def test_an_unreachable_index_is_an_error(fake, capsys):
    fake.set(pip_output=f"WARNING: Retrying (Retry(total=0)) after connection broken\n{NO_UV}", pip_status="1")
    with pytest.raises(InstallationError, match=r"could not install requirements/uv\.txt: "):
        installation.install(fake.folder, ["cpu"])
    assert NO_UV in capsys.readouterr().err
    assert len(fake.calls()) == 1


def test_an_unwritable_cache_is_not_used(fake, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "file" / "uv"))
    installation.install(fake.folder, ["cpu"])
    assert fake.calls()[-1].endswith(" no-cache=1")


def test_an_invalid_pip_configuration_is_a_one_line_error(fake):
    broken = "#!/bin/sh\necho words >&2; echo 'ERROR: pip.conf is broken' >&2; exit 3\n"
    fake.set(python=broken)
    with pytest.raises(InstallationError, match=r"bin/python -m pip config list: ERROR: pip\.conf is broken$"):
        installation.install(fake.folder, ["cpu"])


def test_a_missing_python_is_a_one_line_error(fake):
    (fake.bin / "python").unlink()
    with pytest.raises(InstallationError, match=r"bin/python -m pip config list: .*No such file"):
        installation.install(fake.folder, ["cpu"])


@pytest.mark.parametrize("error", [OSError("no"), subprocess.CalledProcessError(1, "ensurepip")])
def test_a_missing_venv_module_is_a_one_line_error(fake, monkeypatch, error):
    def create(*_: object, **__: object) -> None:
        raise error

    (fake.bin / "pip").unlink()
    monkeypatch.setattr("utils.installation.venv.create", create)
    with pytest.raises(InstallationError, match=rf"{type(error).__name__}.*install python3\.\d+-venv$"):
        installation.install(fake.folder, ["cpu"])


def test_a_second_process_waits_for_the_first(fake, capsys):
    with (fake.folder / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=installation.install, args=(fake.folder, ["cpu"]))
        second.start()
        printed = ""
        while "waiting" not in printed:
            time.sleep(0.01)
            printed += capsys.readouterr().out
        assert fake.calls() == []
        installation.Stamp(fake.folder, ["cpu"]).finish()
    second.join()
    assert printed == f"environment: waiting for another installation into {fake.folder}\n"
    assert fake.calls() == []


def test_an_interrupt_prints_one_line_and_the_next_run_continues(fake, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("utils.installation.progress.run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert environment.main(["install", str(fake.folder), "cpu"]) == 130
    assert capsys.readouterr().err == "error: interrupted: run the same `make` again to continue\n"
    assert environment.main(["install", str(fake.folder), "cpu"]) == 0
    assert len(fake.calls()) == 2


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
    monkeypatch.setattr(installation, "ROOT", real)
    return real


def values(folder: Path) -> str:
    """Return the values of the tiny packages in an environment."""
    code = "import tiny_one, tiny_two; print(tiny_one.VALUE, tiny_two.VALUE)"
    return subprocess.run([folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=True).stdout


def test_real_uv_installs_updates_repairs_and_checks_hashes(offline, capsys):
    folder = offline / "env"
    installation.install(folder, ["tiny"])
    assert steps(capsys)[1:] == [
        "environment: uv installed",
        f"environment: 2 packages installed (log: {folder}/install.log)",
    ]
    assert values(folder) == "1 2\n"
    assert (
        subprocess.run(
            [folder / "bin" / "python", "-m", "pip", "--version"], check=False, capture_output=True
        ).returncode
        == 0
    )

    with pytest.raises(InstallationError, match=r"requirements/false\.txt"):
        installation.install(folder, ["false"])
    assert "Hash mismatch" in capsys.readouterr().err
    assert values(folder) == "1 2\n"

    installation.install(folder, ["newer"])
    assert values(folder) == "10 2\n"

    # Like after a kill: the package is listed, but its module is missing.
    installation.Stamp(folder, ["newer"]).begin()
    next(folder.rglob("tiny_one.py")).unlink()
    installation.install(folder, ["newer"])
    assert values(folder) == "10 2\n"
