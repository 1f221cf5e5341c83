"""Audit of the requirements with a fake pip-audit."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests import audit

LOCK = """\
alpha==1.0 ; python_full_version < '3.11' \\
    --hash=sha256:00
    # via beta
alpha==2.0 ; python_full_version >= '3.11' and python_full_version < '3.13' \\
    --hash=sha256:01
alpha==3.0 ; python_full_version >= '3.13' \\
    --hash=sha256:02
beta==1!0.5
gamma==4 ; sys_platform == 'win32'
"""


def vulnerability(name: str, *aliases: str) -> dict:
    return {"id": name, "aliases": list(aliases), "fix_versions": ["9.9"], "description": "It leaks."}


class PipAudit:
    """Fake pip-audit process with vulnerabilities by package, or an error."""

    def __init__(self) -> None:
        self.known = {"jinja2": [vulnerability("PYSEC-1")]}
        self.skipped: set[str] = set()
        self.stderr = ""
        self.audited: list[list[str]] = []

    def run(self, command: list[str], **options) -> subprocess.CompletedProcess[str]:
        lines = Path(command[command.index("--requirement") + 1]).read_text().splitlines()
        self.audited.append(lines)
        if self.stderr:
            return subprocess.CompletedProcess(command, 1, "", self.stderr)
        dependencies: list[dict] = []
        for name, version in (line.split("==") for line in lines):
            if name in self.skipped:
                dependencies.append({"name": name, "skip_reason": f"{name} was not found"})
            else:
                dependencies.append({"name": name, "version": version, "vulns": self.known.get(name, [])})
        found = any(dependency.get("vulns") for dependency in dependencies)
        return subprocess.CompletedProcess(command, int(found), json.dumps({"dependencies": dependencies}), "")


@pytest.fixture
def pip_audit(monkeypatch, tmp_path) -> PipAudit:
    fake = PipAudit()
    monkeypatch.setattr("tests.audit.subprocess.run", fake.run)
    lock = tmp_path / "cpu.txt"
    lock.write_text(LOCK)
    monkeypatch.setattr(audit, "FILES", [lock])
    monkeypatch.setattr(audit, "EXCEPTIONS", {})
    return fake


def test_pins_are_those_of_supported_pythons():
    assert audit.pins([LOCK]) == {("alpha", "1.0"), ("alpha", "2.0"), ("beta", "1!0.5")}


def test_pins_of_the_locked_requirements_are_read():
    pins = audit.pins(file.read_text() for file in audit.FILES)
    assert {"bentoml", "onnxruntime", "onnxruntime-gpu", "pip-audit", "uv"} <= {name for name, _ in pins}
    assert all(re.fullmatch(r"\d[\w.!]*", version) for _, version in pins)


def test_pip_audit_gets_no_package_twice_in_one_run(pip_audit):
    assert audit.main() == 0
    assert pip_audit.audited == [["jinja2==2.4.1"], ["alpha==1.0", "beta==1!0.5"], ["alpha==2.0"]]


def test_vulnerability_fails_the_audit(pip_audit, capsys):
    pip_audit.known["beta"] = [vulnerability("PYSEC-2", "CVE-2")]
    assert audit.main() == 1
    output = capsys.readouterr().out
    assert "beta 1!0.5: PYSEC-2, CVE-2; fixed in 9.9\n    It leaks.\n" in output
    assert "audit: 3 versions; vulnerabilities: 1; exceptions that apply: 0\n" in output


@pytest.mark.parametrize("name", ["PYSEC-2", "CVE-2"])
def test_exception_applies_by_id_and_by_alias(pip_audit, monkeypatch, capsys, name):
    pip_audit.known["beta"] = [vulnerability("PYSEC-2", "CVE-2")]
    monkeypatch.setattr(audit, "EXCEPTIONS", {name: "nothing here calls it"})
    assert audit.main() == 0
    assert capsys.readouterr().out == "audit: 3 versions; vulnerabilities: 0; exceptions that apply: 1\n"


def test_obsolete_exception_is_reported(pip_audit, monkeypatch, capsys):
    monkeypatch.setattr(audit, "EXCEPTIONS", {"CVE-2": "nothing here calls it"})
    assert audit.main() == 0
    assert "the exception CVE-2 no longer applies: remove it from tests/audit.py\n" in capsys.readouterr().out


def test_unknown_version_is_reported(pip_audit, capsys):
    pip_audit.skipped.add("beta")
    assert audit.main() == 0
    assert "not audited: beta was not found\n" in capsys.readouterr().out


@pytest.mark.parametrize("skipped", [True, False], ids=["404", "no vulnerabilities"])
def test_audit_is_skipped_when_the_index_has_no_vulnerability_data(pip_audit, capsys, skipped):
    pip_audit.known.clear()
    pip_audit.skipped |= {"jinja2"} if skipped else set()
    assert audit.main() == 0
    output = capsys.readouterr().out
    assert output.startswith("audit: skipped, no source of vulnerability data is reachable")
    assert output.count("\n") == 1
    assert len(pip_audit.audited) == 1


def test_other_failure_of_pip_audit_is_an_error(pip_audit):
    pip_audit.stderr = "WARNING: words\nERROR:pip_audit._cli:requirement beta is not pinned\n"
    with pytest.raises(SystemExit, match=r"error: pip-audit: ERROR.*beta is not pinned"):
        audit.main()


def test_audit_is_skipped_after_a_timeout(pip_audit, monkeypatch, capsys):
    def run(command: list[str], **options) -> None:
        raise subprocess.TimeoutExpired(command, 600)

    monkeypatch.setattr("tests.audit.subprocess.run", run)
    assert audit.main() == 0
    assert "no answer within 600 s" in capsys.readouterr().out


def test_audit_is_skipped_without_a_network(tmp_path, monkeypatch, capsys):
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path))
    assert audit.main() == 0
    output = capsys.readouterr().out
    assert "is reachable (requests.exceptions.ProxyError)\n" in output
    assert output.count("\n") == 1
