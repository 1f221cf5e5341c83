"""nginx with deploy/nginx/mobile-sam.conf, in front of a service on this machine.

with running(folder, server.port) as proxy:
    requests.get(f"{proxy.url}/livez")
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import ROOT
from harness.server import Server
from harness.waiting import free_ports, wait_until

PROGRAM = shutil.which("nginx") or "/usr/sbin/nginx"
SITE = ROOT / "deploy" / "nginx" / "mobile-sam.conf"
MAIN = """
worker_processes 1;
worker_rlimit_nofile 4096;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 2000; }}
http {{
    access_log off;
    client_body_temp_path bodies;
    proxy_temp_path answers;
    fastcgi_temp_path unused; uwsgi_temp_path unused; scgi_temp_path unused;
{site}
}}
"""
PLAIN, HTTP1, HTTP2 = "", " ssl", " ssl http2"
"""What a port speaks: HTTP/1.1 without TLS, with TLS, or HTTP/2."""


def installed() -> bool:
    """Return whether nginx is here."""
    return Path(PROGRAM).exists()


def site(service_port: int, port: int, protocol: str, certificate: Path) -> str:
    """Return the deployed configuration for these ports of 127.0.0.1 and ::1.

    Args:
        service_port: port of the service.
        port: port of nginx.
        protocol: PLAIN, HTTP1 or HTTP2.
        certificate: folder with `fullchain.pem` and `privkey.pem`.

    Raises:
        ValueError: the deployed configuration has other lines than are replaced here.
    """
    text = SITE.read_text()
    listen = f"listen 127.0.0.1:{port}{protocol};\n    listen [::1]:{port}{protocol};"
    for deployed, here in (
        ("127.0.0.1:3000", f"127.0.0.1:{service_port}"),
        (f"listen 443{HTTP2};", listen),
        ("/etc/ssl/segment.example/", f"{certificate}/"),
    ):
        if deployed not in text:
            raise ValueError(f"{SITE}: expected {deployed!r}")
        text = text.replace(deployed, here)
    if protocol == PLAIN:
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if not line.lstrip().startswith("ssl_"))
    return text


@contextmanager
def running(folder: Path, service_port: int, protocol: str = PLAIN) -> Iterator[Server]:
    """Run nginx on a free port of 127.0.0.1 and of ::1; its files, with a certificate that nobody
    trusts, are in a new folder.
    """
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    if protocol != PLAIN:
        _write_certificate(folder)
    file, log = folder / "nginx.conf", folder / "log"
    file.write_text(MAIN.format(site=site(service_port, port, protocol, folder)))
    # A superuser's nginx works as nobody, who cannot write to the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    command = [PROGRAM, "-p", str(folder), "-c", str(file), "-g", f"daemon off; {user}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    scheme = "http" if protocol == PLAIN else "https"
    server = Server(process, f"{scheme}://127.0.0.1:{port}", log)
    try:
        wait_until(
            lambda: process.poll() is not None or _listens(port), what="nginx does not listen"
        )
        yield server
    finally:
        server.stop()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _write_certificate(folder: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-keyout", "privkey.pem", "-out", "fullchain.pem"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
