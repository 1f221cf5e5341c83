"""Progress bars on a terminal."""

import io
import re

from rich.console import Console

from mobile_sam_client._commands import output


def test_progress_shows_rate_and_remaining_time(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(output, "Console", lambda **_: Console(file=screen, force_terminal=True, width=120))
    with output.progress("Images", 4) as update:
        for _ in range(3):
            update(advance=1)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).splitlines()[-2]
    assert re.search(r"3/4\s+\d+\.\d\d/s 0:00:\d\d 0:00:\d\d", last), last
