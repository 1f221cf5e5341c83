"""Export this machine's pip configuration for image builds: `-m deploy.image.pip_config FOLDER`.

`pip.conf` gets pip's indexes, proxies and timeouts, `ca.crt` the certificates that pip trusts. Both are mounted only
for the install commands and end up in no layer. Standard library only.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from utils import pip_config

CERTIFICATES = "/run/secrets/ca.crt"
"""Path of `ca.crt` during a build."""
EXPORTED = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def portable(configured: dict[str, str]) -> dict[str, str]:
    """Return the settings that also work in a container, by name: local folders are left out."""
    values = {name: configured.get(name, "").split() for name in EXPORTED}
    kept = {name: [part for part in parts if not part.startswith(("file:", "/"))] for name, parts in values.items()}
    return {name: " ".join(parts) for name, parts in kept.items() if parts}


def main(folder: Path) -> None:
    """Write `pip.conf` and `ca.crt` to a folder."""
    configured = pip_config.read(Path(sys.executable))
    shutil.copyfile(configured.get("cert") or SYSTEM_CERTIFICATES, folder / "ca.crt")
    lines = [
        "[global]",
        f"cert = {CERTIFICATES}",
        *(f"{name} = {value}" for name, value in portable(configured).items()),
    ]
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
