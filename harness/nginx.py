"""nginx, configured as deploy/nginx/mobile-sam.conf but without TLS, in front of a service on this
machine.

with running(folder, server.port) as proxy:
    requests.get(f"{proxy.url}/livez")
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.server import Server
from harness.waiting import free_ports, wait_until

PROGRAM = shutil.which("nginx") or "/usr/sbin/nginx"
CONFIGURATION = """
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
    upstream mobile_sam {{ server 127.0.0.1:{service}; keepalive 32; }}
    limit_conn_zone $binary_remote_addr zone=addresses:10m;
    server {{
        listen 127.0.0.1:{port};
        listen [::1]:{port};
        limit_conn addresses 100;
        client_max_body_size 34m;
        client_body_buffer_size 1m;
        client_header_timeout 10s;
        client_body_timeout 15s;
        location / {{
            proxy_pass http://mobile_sam;
            proxy_read_timeout 65s;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr;
        }}
    }}
}}
"""


def installed() -> bool:
    """Return whether nginx is here."""
    return Path(PROGRAM).exists()


@contextmanager
def running(folder: Path, service_port: int) -> Iterator[Server]:
    """Run nginx on a free port of 127.0.0.1 and of ::1; its files are in a new folder."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    file, log = folder / "nginx.conf", folder / "log"
    file.write_text(CONFIGURATION.format(port=port, service=service_port))
    # A superuser's nginx works as nobody, who cannot write to the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    command = [PROGRAM, "-p", str(folder), "-c", str(file), "-g", f"daemon off; {user}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    server = Server(process, f"http://127.0.0.1:{port}", log)
    try:
        wait_until(
            lambda: process.poll() is not None or server.readiness() == 200,
            what="nginx does not answer",
        )
        yield server
    finally:
        server.stop()
