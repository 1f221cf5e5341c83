"""The reference in `docs/command-line.md`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.main import get_command

from mobile_sam_client._commands import app
from tools.command_line_page import main, page

ROOT = Path(__file__).resolve().parents[3]
PAGE = page()


def test_page_is_up_to_date():
    assert (ROOT / "docs" / "command-line.md").read_text() == PAGE, "run `make docs`"


def test_main_writes_the_page_to_the_given_file(tmp_path):
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text() == PAGE


def test_page_has_every_option_of_every_command():
    sections = {section.split()[0]: section for section in PAGE.split("\n## mobile-sam ")[1:]}
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        for param in command.params:
            if param.name != "help":
                assert f"`{param.opts[0] if param.param_type_name == 'option' else param.metavar}" in sections[name]


def test_shared_options_are_described_once():
    assert PAGE.count("| URL of the service |") == 1
    assert PAGE.count("| `--url URL` |") == 1
