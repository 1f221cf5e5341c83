"""A machine without a supported Python: uv downloads one, and the service runs on it.

uv's list of builds is replaced by one with a build that is made from the running Python.
"""

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from benchmarks.fleet import SMALL
from harness import ROOT, serving
from utils.api.openapi import EXAMPLE
from utils.triton.installation import shared_libpython

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

VERSION = f"3.{sys.version_info.minor}"
LEFT_OUT = (
    "__pycache__",
    "test",
    "site-packages",
    "dist-packages",
    f"config-{VERSION}-x86_64-linux-gnu",
)
"""Folders of the standard library that the build does not have."""
PROGRAM = f"""
import sys
from tools import environment
from tools.prerequisites import InstallationError

def check_python():
    raise InstallationError("this Python is not supported")

environment.check_python = check_python
environment.DOWNLOADED_PYTHON = "{VERSION}"
sys.exit(environment.main(sys.argv[1:]))
"""
"""`python -m tools.environment` in an unsupported Python."""


def write_build(archive: Path) -> None:
    """Write the running Python as uv's builds are packed, whose configuration has the prefix
    `/install`.
    """
    prefix = sys.base_prefix.encode()

    def add(path: Path, name: str) -> None:
        if path.is_dir():
            for entry in path.iterdir():
                if entry.name not in LEFT_OUT:
                    add(entry, f"{name}/{entry.name}")
        elif path.exists():
            content = path.read_bytes()
            if path.name.startswith("_sysconfigdata"):
                content = content.replace(b"'%b/" % prefix, b"'/install/")
            member = tarfile.TarInfo(f"python/{name}")
            member.size, member.mode = len(content), path.stat().st_mode & 0o777
            file.addfile(member, io.BytesIO(content))

    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        add(Path(sys.executable).resolve(), f"bin/python{VERSION}")
        add(shared_libpython(), f"lib/{shared_libpython().name}")
        add(Path(sysconfig.get_path("stdlib")), f"lib/python{VERSION}")


def write_list(path: Path, archive: Path) -> None:
    """Write a list of builds for uv that has one build."""
    build = {
        "name": "cpython",
        "arch": {"family": "x86_64", "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": 3,
        "minor": sys.version_info.minor,
        "patch": sys.version_info.micro,
        "prerelease": "",
        "url": archive.as_uri(),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "variant": None,
    }
    path.write_text(json.dumps({f"cpython-{platform.python_version()}-linux-x86_64-gnu": build}))


def test_service_runs_on_a_downloaded_python(builtin_repository, tmp_path):
    archive, builds, env = tmp_path / "build.tar.gz", tmp_path / "builds.json", tmp_path / "env"

    def install(**variables: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, env, "cpu"],
            cwd=ROOT,
            env={**os.environ, "PATH": str(tmp_path), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1200,
        )
        return done.returncode, done.stdout.splitlines()

    if "deb_system" in sysconfig.get_scheme_names():
        pytest.skip("Debian's Python cannot be moved: it has parts of pip outside its prefix")
    write_build(archive)
    write_list(builds, archive)
    status, steps = install(UV_PYTHON_DOWNLOADS_JSON_URL=str(builds))
    assert status == 0, steps
    assert [step.partition(":")[0] for step in steps] == [f"Python {VERSION}", f"environment {env}"]
    python = env / "bin" / "python"
    assert python.resolve().is_relative_to(env / "python")
    archive.unlink()
    assert install() == (0, [])

    settings = {
        "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository),
        "MOBILE_SAM_CACHE_DIR": str(tmp_path / "cache"),
    }
    with serving(tmp_path / "log", wrapper=[str(python)], **settings, **SMALL) as server:
        assert server.post(**EXAMPLE).status_code == 200
    scripts = [
        script.read_text()
        for script in (tmp_path / "cache" / "triton").glob("*/plain/tritonserver")
    ]
    assert scripts
    assert [script for script in scripts if f":{env}/python/" not in script] == []
