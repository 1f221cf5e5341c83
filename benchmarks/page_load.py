"""Time of the page's first and second visit from far away.

    python -m benchmarks.page_load         this checkout
    python -m benchmarks.page_load main    the same, and another revision in turns with it
    make page-load BASELINE=main           the same

Chromium opens `/ui` through a proxy that delays each direction by 75 ms, also the opening of a
connection. It is as quick as the machine otherwise. A first visit has an empty cache. The page is
usable when its script has run: it then asks for `/info`.

If nginx is installed, this checkout is also opened through it, with deploy/nginx and TLS, by
HTTP/1.1 and by HTTP/2. Chromium keeps no files of a host whose certificate nobody trusts, so a
second visit is like a first one there.
"""

import argparse
import asyncio
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from benchmarks.compare import BASELINE, OURS, checked_out, repository_of
from benchmarks.machine import describe_machine
from benchmarks.service import BUILTIN, CACHE, running_checkout
from benchmarks.stats import table
from harness import ROOT, free_ports, nginx
from harness.browser import chromium

ONE_WAY_S = 0.075
ROUNDS = 5
NGINX = {"HTTP/1.1": nginx.HTTP1, "HTTP/2": nginx.HTTP2}
HEADER = ("page", "visit", "requests", "from the cache", "usable, median s", "fastest", "slowest")


class DelayingProxy:
    """A TCP proxy to a port of this machine that passes everything on after a delay."""

    def __init__(self, target_port: int, delay_s: float) -> None:
        self._target_port, self._delay_s = target_port, delay_s

    async def serve(self, port: int, started: Future[Callable[[], object]]) -> None:
        """Serve on a port of 127.0.0.1, until what `started` returns is called in any thread."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._connect, "127.0.0.1", port):
            started.set_result(lambda: loop.call_soon_threadsafe(stop.set))
            await stop.wait()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            # The system accepts a connection at once: its first bytes wait for the round trip.
            await asyncio.sleep(2 * self._delay_s)
            answers, requests = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.append(requests)
            await asyncio.gather(self._pass_on(reader, requests), self._pass_on(answers, writer))
        except (OSError, asyncio.CancelledError):
            # Callers reset connections when they leave, and the proxy's end cancels the others.
            for end in writers:
                end.transport.abort()
        for end in writers:
            end.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on until an end has no more; several pieces may be on their way."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            piece = b"-"
            while piece:
                piece = await reader.read(2**16)
                pieces.put_nowait((time.monotonic() + self._delay_s, piece))

        async def write() -> None:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - time.monotonic())
                if not piece:
                    writer.write_eof()
                    break
                writer.write(piece)
                await writer.drain()

        await asyncio.gather(read(), write())


@contextmanager
def delayed(target_port: int, delay_s: float = ONE_WAY_S) -> Iterator[str]:
    """Yield the URL of a proxy to a port, with a delay in each direction."""
    (port,) = free_ports(1)
    started: Future[Callable[[], object]] = Future()
    serving = DelayingProxy(target_port, delay_s).serve(port, started)
    thread = threading.Thread(target=asyncio.run, args=[serving])
    thread.start()
    stop = started.result()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop()
        thread.join()


@dataclass(frozen=True)
class Visit:
    """What one visit of the page took."""

    sent: list[str]
    """URLs of the HTML and of files that were requested until the page was usable."""
    cached: list[str]
    """URLs of files that the browser took from its cache until then."""
    later: list[str]
    """URLs of files that were requested afterwards, until the page was at rest."""
    usable_s: float


def visit(
    context: BrowserContext, url: str, before_rest: Callable[[Page], object] = lambda _: None
) -> Visit:
    """Open the page in a new tab, and close it once `before_rest` has returned and no request is
    in flight for half a second.
    """
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    addresses: dict[str, str] = {}
    early: set[str] = set()
    cached: set[str] = set()

    def note_request(event: dict[str, Any]) -> None:
        address = addresses[event["requestId"]] = event["request"]["url"]
        if address == f"{url}/info" and not early:
            early.update(addresses)

    def note_answer(event: dict[str, Any]) -> None:
        if event["response"].get("fromDiskCache"):
            cached.add(event["requestId"])

    session.on("Network.requestWillBeSent", note_request)
    session.on("Network.requestServedFromCache", lambda event: cached.add(event["requestId"]))
    session.on("Network.responseReceived", note_answer)
    began = time.monotonic()
    with page.expect_request(f"{url}/info"):
        page.goto(f"{url}/ui", wait_until="commit")
    usable_s = time.monotonic() - began
    before_rest(page)
    page.wait_for_load_state("networkidle")
    page.close()

    files = [(key, address) for key, address in addresses.items() if f"{url}/ui" in address]
    sent = [address for key, address in files if key in early - cached]
    kept = [address for key, address in files if key in early & cached]
    later = [address for key, address in files if key not in early | cached]
    return Visit(sent, kept, later, usable_s)


@contextmanager
def behind_nginx(service_port: int, folder: Path, protocol: str) -> Iterator[str]:
    """Yield the URL of nginx with TLS in front of a service, with a delay in each direction."""
    with nginx.running(folder, service_port, protocol) as proxy, delayed(proxy.port) as url:
        yield url.replace("http://", "https://")


def measure(browser: Browser, urls: dict[str, str], rounds: int) -> str:
    """Return the table of the pages at these URLs, which take turns."""
    visits: dict[tuple[str, str], list[Visit]] = {}
    for _ in range(rounds):
        for name, url in urls.items():
            context = browser.new_context()
            for which in ("first", "second"):
                visits.setdefault((name, which), []).append(visit(context, url))
            context.close()
    rows: list[Sequence[object]] = []
    for (name, which), made in visits.items():
        seconds = [one.usable_s for one in made]
        sent = statistics.median_low(len(one.sent) for one in made)
        cached = statistics.median_low(len(one.cached) for one in made)
        times = (statistics.median(seconds), min(seconds), max(seconds))
        rows.append((name, which, sent, cached, *times))
    return table(HEADER, rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?", help="branch, tag or commit to compare with")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        roots = {OURS: ROOT}
        if arguments.revision:
            baseline = stack.enter_context(checked_out(arguments.revision))
            roots = {BASELINE: baseline, **roots}
        urls = {}
        for name, root in roots.items():
            folder = Path(stack.enter_context(TemporaryDirectory(dir=CACHE)))
            repository = repository_of(root, BUILTIN)
            server = stack.enter_context(running_checkout(root, repository, folder))
            urls[name] = stack.enter_context(delayed(server.port))
            if name != OURS or not nginx.installed():
                continue
            for version, protocol in NGINX.items():
                proxy = behind_nginx(server.port, folder / version.replace("/", "-"), protocol)
                urls[f"{name}, nginx, {version}"] = stack.enter_context(proxy)
        browser = stack.enter_context(chromium("--ignore-certificate-errors"))
        print(describe_machine(versions=False), f"Load average: {os.getloadavg()[0]:.1f}.")
        print(f"{2000 * ONE_WAY_S:.0f} ms to the service and back, {ROUNDS} rounds")
        print(measure(browser, urls, ROUNDS))


if __name__ == "__main__":
    main()
