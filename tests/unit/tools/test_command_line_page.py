"""The reference in `docs/command-line.md`."""

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from mobile_sam_client._commands import app
from tools.command_line_page import main, page
from utils.api.requests import EverythingRequest

ROOT = Path(__file__).resolve().parents[3]
PAGE = page()


def test_page_is_up_to_date():
    assert (ROOT / "docs" / "command-line.md").read_text() == PAGE, "run `make docs`"


def test_main_writes_the_page_to_the_given_file(tmp_path):
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text() == PAGE


def test_page_has_every_option_of_every_command():
    *sections, shared = re.split(r"\n## ", PAGE)[1:]
    own = {section.split()[1]: section for section in sections}
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    assert own.keys() == commands.keys()
    groups = re.findall(r"^(`.*`):\n\n((?:- .*\n)+)", shared, re.MULTILINE)
    for name, command in commands.items():
        options = own[name] + "".join(group for names, group in groups if f"`{name}`" in names.split(", "))
        for param in command.params:
            if param.name != "help":
                assert f" `{param.opts[0] if param.param_type_name == 'option' else param.metavar}" in options


def test_grid_options_are_fields_of_everything():
    (line,) = re.findall(r"^- (.*): fields of \[POST /everything\]", PAGE, re.MULTILINE)
    names = re.findall(r"`--([a-z-]+)`", line)
    assert names
    assert {name.replace("-", "_") for name in names} < set(EverythingRequest.model_fields)


def test_shared_options_are_described_once():
    assert PAGE.count("URL of the service") == 1
    assert PAGE.count("- `--url URL`") == 1
