"""WebKit, the engine of Safari, driven by the WebDriver protocol."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from harness import free_ports, wait_until

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of an element's reference, by the protocol."""
START_TIMEOUT_S, TIMEOUT_S = 60, 120


class WebKit:
    """One window of WebKitGTK's MiniBrowser. It keeps nothing, like a private window."""

    def __init__(self, session_url: str) -> None:
        self._session_url = session_url

    @classmethod
    @contextlib.contextmanager
    def opened(cls, url: str) -> Iterator[WebKit]:
        """Open a page on a screen that nobody sees, until the block ends."""
        (port,) = free_ports(1)
        with contextlib.ExitStack() as stack:
            display = stack.enter_context(virtual_screen())
            driver = subprocess.Popen(
                ["WebKitWebDriver", f"--port={port}"],
                env={
                    **os.environ,
                    "DISPLAY": display,
                    # The sandbox does not work for root; only this project's page is opened.
                    "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",
                },
            )
            stack.callback(stop, driver)
            server = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(f"{server}/status"), START_TIMEOUT_S)
            created = requests.post(
                f"{server}/session", json={"capabilities": {}}, timeout=TIMEOUT_S
            ).json()["value"]
            window = cls(f"{server}/session/{created['sessionId']}")
            stack.callback(requests.delete, window._session_url, timeout=TIMEOUT_S)
            window.command("url", url=url)
            yield window

    def command(self, path: str, **parameters: Any) -> Any:
        """Send a command and return its value."""
        response = requests.post(f"{self._session_url}/{path}", json=parameters, timeout=TIMEOUT_S)
        value = response.json()["value"]
        assert response.status_code == 200, value
        return value

    def run(self, script: str, *arguments: object) -> Any:
        """Run the body of a function in the page and return its value."""
        return self.command("execute/sync", script=script, args=arguments)

    def wait_for(self, expression: str) -> Any:
        """Return the value of a JavaScript expression once it is true."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := self.run(f"return {expression}")):
            assert time.monotonic() < deadline, f"{expression}; on the page: {self.text('body')}"
            time.sleep(0.1)
        return value

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def choose_file(self, selector: str, file: Path) -> None:
        """Give a file to a file input."""
        found = self.command("element", using="css selector", value=selector)
        self.command(f"element/{found[ELEMENT]}/value", text=str(file))

    def click(self, x: float, y: float) -> None:
        """Click at a position of the page in pixels."""
        steps = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self.command("actions", actions=[{"type": "pointer", "id": "mouse", "actions": steps}])


@contextlib.contextmanager
def virtual_screen() -> Iterator[str]:
    """Yield the name of an X display in memory."""
    read_end, write_end = os.pipe()
    screen = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "1400x1000x24", "-nolisten", "tcp"],
        pass_fds=[write_end],
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    with os.fdopen(read_end) as names, contextlib.ExitStack() as stack:
        stack.callback(stop, screen)
        yield f":{names.readline().strip()}"


def answers(url: str) -> bool:
    """Return whether a server answers."""
    try:
        return requests.get(url, timeout=5).ok
    except (requests.ConnectionError, requests.Timeout):
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process."""
    process.terminate()
    process.wait(TIMEOUT_S)
