"""pip's configuration for uv, which does not read it, and for image builds. Standard library only.

python3 -m tools.pip_config FOLDER      write `pip.conf` and `ca.crt` for image builds as this
machine's pip has them
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sam_onnx import pip_options

VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "no-cache-dir": "UV_NO_CACHE",
}
"""uv's variables for options of pip that have the same values."""
EXPORTED = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
"""Options that image builds get."""
CERTIFICATES = "/run/secrets/ca.crt"
"""Path of `ca.crt` during an image build."""
SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def for_uv(configured: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables by which uv uses pip's sources of packages and its cache's
    disk.
    """
    # Like pip, merge all indexes. uv does not by default, because an index could offer a different
    # package of the same name; the hashes rule that out.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}
    variables |= {VARIABLES[name]: value for name, value in configured.items() if name in VARIABLES}
    if certificates := configured.get("cert"):
        path = Path(certificates).expanduser()
        variables["SSL_CERT_DIR" if path.is_dir() else "SSL_CERT_FILE"] = str(path)
    if links := configured.get("find-links", "").split():
        local = {link: Path(link).expanduser() for link in links if "://" not in link}
        existing = [
            str(local.get(link, link))
            for link in links
            if link not in local or local[link].exists()
        ]
        variables["UV_FIND_LINKS"] = ",".join(existing)  # pip ignores missing folders, and uv fails
    if pip_options.is_set(configured, "no-index"):
        variables["UV_OFFLINE"] = "1"
    if cache := configured.get("cache-dir"):
        variables["UV_CACHE_DIR"] = str(Path(cache, "uv").expanduser())
    return variables


def export(configured: Mapping[str, str], folder: Path) -> None:
    """Write `pip.conf` and `ca.crt` for image builds, without local folders as indexes.

    Args:
        configured: pip's options by name.
        folder: folder for both files.
    """
    shutil.copyfile(configured.get("cert") or SYSTEM_CERTIFICATES, folder / "ca.crt")
    lines = ["[global]", f"cert = {CERTIFICATES}"]
    for name in EXPORTED:
        parts = [
            part for part in configured.get(name, "").split() if not part.startswith(("file:", "/"))
        ]
        lines += [f"{name} = {' '.join(parts)}"] * bool(parts)
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")


def main(arguments: Sequence[str]) -> None:
    """Write the files for image builds to a folder.

    Raises:
        SystemExit: the arguments are wrong (status 2), or a one-line error.
    """
    if len(arguments) != 1:
        print("usage: python3 -m tools.pip_config FOLDER", file=sys.stderr)
        sys.exit(2)
    folder = Path(arguments[0])
    if not folder.is_dir():
        sys.exit(f"error: {folder}: no such folder; make it first, outside of the checkout")
    try:
        export(pip_options.read([sys.executable, "-m", "pip"]), folder)
    except OSError as error:
        sys.exit(f"error: {error.filename or folder}: {error.strerror or error}")
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines() or [f"status {error.returncode}"]
        sys.exit(f"error: {sys.executable} -m pip config list: {lines[-1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
