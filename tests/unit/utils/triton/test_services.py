"""Records of running services, and which of them use a model repository."""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils.triton import services
from utils.triton.run import PREFIX
from utils.triton.services import Service, announce, main, users_of


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder with the run folders of two running services and of a killed one, all of the same
    repository.
    """
    locks = []
    for name, mode in (("b", "none"), ("a", "poll"), ("killed", "none")):
        folder = tmp_path / "memory" / f"{PREFIX}{name}"
        folder.mkdir(parents=True)
        announce(folder, Service(7, f"http://{name}", str(tmp_path / "models"), "official", mode))
        if name != "killed":
            locks.append(os.open(folder, os.O_RDONLY))
            fcntl.flock(locks[-1], fcntl.LOCK_SH)
    yield tmp_path / "memory"
    for lock in locks:
        os.close(lock)


def test_running_services_of_a_repository_are_named(memory, tmp_path):
    assert users_of(tmp_path / "models", memory) == [
        (
            "the service at http://a (process 7) uses the same folder, with official weights "
            "until Triton finds other files in the folder, within 15 s"
        ),
        (
            "the service at http://b (process 7) uses the same folder, with official weights until"
            " it is started again"
        ),
    ]
    assert users_of(tmp_path / "other", memory) == []


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"process": 1})])
def test_records_of_other_releases_are_left_out(memory, tmp_path, content):
    (memory / f"{PREFIX}a" / "service.json").write_text(content)
    assert len(users_of(tmp_path / "models", memory)) == 1


def test_the_command_prints_a_note_for_each_service(memory, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(services, "SHARED_MEMORY", memory)
    monkeypatch.setattr(services.users_of, "__defaults__", (memory,))
    main([str(tmp_path / "models")])
    lines = capsys.readouterr().err.splitlines()
    assert [line[:31] for line in lines] == [
        "note: the service at http://a (",
        "note: the service at http://b (",
    ]
    with pytest.raises(SystemExit, match="2"):
        main([])
