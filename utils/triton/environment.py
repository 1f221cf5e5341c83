"""Print shell commands that put `tritonserver`, without the watchdog, and this Python's programs on
PATH.

eval "$(.venv/bin/python -m utils.triton.environment)"
"""

import shlex
import sys
from pathlib import Path

from utils.settings import Settings, SettingsError
from utils.triton import installation


def commands() -> str:
    """Return the shell commands.

    Raise `SettingsError` or `TritonSetupError` as setting up Triton does.
    """
    home = installation.prepare(Settings.from_environment().cache_dir).parent
    folders = ((home / installation.PLAIN).parent, Path(sys.prefix) / "bin")
    # BentoML sends usage data by default.
    return (
        "export BENTOML_DO_NOT_TRACK=True"
        f' PATH={":".join(shlex.quote(str(folder)) for folder in folders)}:"$PATH"'
    )


if __name__ == "__main__":
    try:
        print(commands())
    except (SettingsError, installation.TritonSetupError) as error:
        sys.exit(f"error: {error}")
