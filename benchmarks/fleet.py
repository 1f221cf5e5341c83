"""Replicas of the service behind Envoy on this machine, and faults of one of them."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.annotators import REPLICA
from harness import Server, envoy, free_ports, launch_server
from harness.server import STOP_TIMEOUT_S

TURNS, BY_IMAGE = "round robin", "by image"
"""Ways to route requests."""
SMALL = {
    "MOBILE_SAM_THREADS": "1",
    "MOBILE_SAM_ORCHESTRATORS": "1",
    "MOBILE_SAM_EMBEDDING_CACHE_BYTES": "1000000000",
    "BENTOML_CONFIG_OPTIONS": "api_server.workers=1",
}
"""Settings of a replica with one thread, which takes 0.8 GB with the built-in weights."""
NOTICED_S = 2.0
"""Time after which Envoy has noticed that a replica is ready."""
SLICE_S = 0.1
"""Time in which a slow replica runs once."""


@dataclass
class Fleet:
    """Replicas, and an Envoy for each way to route requests."""

    folder: Path
    repository: Path
    settings: dict[str, str]
    replicas: list[Server] = field(default_factory=list)
    proxies: dict[str, envoy.Envoy] = field(default_factory=dict)

    def launch(self, port: int) -> Server:
        """Launch a replica with an empty cache, as a new pod has it."""
        shutil.rmtree(folder := self.folder / str(port), ignore_errors=True)
        settings = {**SMALL, **self.settings, "MOBILE_SAM_MODEL_REPOSITORY": str(self.repository)}
        return launch_server(folder / "log", port=port, **settings)

    def start_again(self, index: int) -> None:
        """Start a replica that has ended, and wait until it gets requests."""
        self.replicas[index] = self.launch(self.replicas[index].port).wait_until_ready()
        time.sleep(NOTICED_S)

    def restart_all(self) -> None:
        """Restart the replicas one after another."""
        for index, server in enumerate(self.replicas):
            server.stop()
            self.start_again(index)

    def stop(self) -> None:
        """Stop all processes."""
        servers = [*self.proxies.values(), *self.replicas]
        for server in servers:
            server.request_stop()
        for server in servers:
            server.process.wait(STOP_TIMEOUT_S)

    @contextmanager
    def killed(self, index: int) -> Iterator[None]:
        """Kill a replica; start it again at the end."""
        self.replicas[index].kill()
        yield
        self.start_again(index)

    @contextmanager
    def slowed(self, index: int, share: float) -> Iterator[None]:
        """Let a replica run for a share of the time; with 0 it hangs."""
        family, over = self.replicas[index].family(), threading.Event()

        def slow_down() -> None:
            while not over.is_set():
                for process in family:
                    process.suspend()
                over.wait(SLICE_S * (1 - share) if share else None)
                for process in family:
                    process.resume()
                over.wait(SLICE_S * share)

        (thread := threading.Thread(target=slow_down)).start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def running(folder: Path, repository: Path, count: int, **settings: str) -> Iterator[Fleet]:
    """Run replicas and Envoys until the end of the block."""
    fleet = Fleet(folder, repository, settings)
    with ExitStack() as stack:
        stack.callback(fleet.stop)
        fleet.replicas += [fleet.launch(port) for port in free_ports(count)]
        ports = [server.wait_until_ready().port for server in fleet.replicas]
        for routing, change in ((TURNS, _take_turns), (BY_IMAGE, _name_replicas)):
            (folder / routing).mkdir()
            fleet.proxies[routing] = envoy.start(folder / routing, ports, change)
            fleet.proxies[routing].wait_until_ready()
        yield fleet


def _name_replicas(configuration: dict[str, Any]) -> None:
    manager = configuration["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0][
        "typed_config"
    ]
    header = {"header": {"key": REPLICA, "value": "%UPSTREAM_REMOTE_ADDRESS%"}}
    manager["route_config"]["response_headers_to_add"] = [header]


def _take_turns(configuration: dict[str, Any]) -> None:
    for cluster in configuration["static_resources"]["clusters"]:
        cluster |= {"lb_policy": "ROUND_ROBIN", "common_lb_config": {}}
