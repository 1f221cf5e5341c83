"""Writes down how pip reaches its packages on this machine, for builds of images: `pip_config.py FOLDER`.

`pip.conf` gets what `pip config` and the environment say of indexes, proxies and time limits, `ca.crt` the certificates
that pip trusts; both are mounted for the one command that installs, and are in no layer. Standard library only.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

CERTIFICATES = "/run/secrets/ca.crt"
"""Where a build finds `ca.crt`."""
TAKEN = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def settings(listing: str) -> dict[str, str]:
    """What `pip config list` shows: the values that a container can use too, by name; later lines win."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        found[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    # A folder of this machine is none of the container's.
    return {
        name: " ".join(part for part in value.split() if not part.startswith(("file:", "/")))
        for name, value in found.items()
        if name in TAKEN
    } | {name: value for name, value in found.items() if name == "cert"}


def main(folder: Path) -> None:
    """Write both files."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    found = settings(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    own = found.pop("cert", "")
    shutil.copyfile(own or SYSTEM_CERTIFICATES, folder / "ca.crt")
    lines = ["[global]", f"cert = {CERTIFICATES}", *(f"{name} = {value}" for name, value in found.items() if value)]
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
