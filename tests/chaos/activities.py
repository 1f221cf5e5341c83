"""What callers do all day, gently: clicks, lists, tools, broken and cancelled requests, slow
readers.

with all_day(server, activities()) as results:
    time.sleep(60)
print(results["clicks on known images"])
"""

import base64
import hashlib
import itertools
import random
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import requests

from harness import Server
from harness.load import Request, json_request
from tests.chaos.callers import click, photo
from tests.chaos.tool_requests import TOOL_PATHS
from tests.chaos.valid_requests import valid_request
from tests.fuzz.corpus import expected_statuses, surprise

OK = "ok"
KNOWN_IMAGES = 6
LIST_IMAGES = 4
LIST_TIMEOUT_S = 300.0
"""Time for a list: its images wait while other callers send work."""
SLOW_READ_S = 8.0
"""Time that a slow reader reads, at 4 kB per 0.2 s, before it leaves."""
GETS = (
    "/livez",
    "/readyz",
    "/info",
    "/metrics",
    "/decoder.onnx",
    "/ui",
    "/docs.json",
    "/embed/unknown-job-id-000000",
)
MISSING = {"/embed/unknown-job-id-000000": 404}

Act = Callable[[Server], str]
"""Function that sends requests to a service; returns `OK`, or what was wrong."""


@dataclass(frozen=True)
class Activity:
    """What a caller does again and again."""

    name: str
    every_s: float
    act: Act


def activities() -> Sequence[Activity]:
    """Return all activities; together they take about a third of a core with the built-in
    weights.
    """
    new_images = itertools.count(9_000_000)
    return (
        Activity(
            "clicks on known images",
            0.4,
            _rotating([click(photo(seed)) for seed in range(KNOWN_IMAGES)]),
        ),
        Activity(
            "clicks on new images",
            4.0,
            lambda server: _sent(server, click(photo(next(new_images)))),
        ),
        Activity(
            "everything", 10.0, lambda server: _sent(server, _everything(photo(next(new_images))))
        ),
        Activity("lists of images", 12.0, lambda server: _list(server, _photos(new_images))),
        Activity(
            "cancelled lists", 20.0, lambda server: _cancelled_list(server, _photos(new_images))
        ),
        Activity("requests of tools", 2.0, _rotating([valid_request(path) for path in TOOL_PATHS])),
        Activity("GETs", 1.0, _rotating([Request(path) for path in GETS])),
        Activity("embeddings", 5.0, _embedding),
        Activity("damaged images and bodies", 1.0, _damaged()),
        Activity(
            "cancelled requests", 2.0, lambda server: _cancelled(server, photo(next(new_images)))
        ),
        Activity("slow readers", 5.0, _read_slowly),
        Activity("half requests", 5.0, _send_half),
    )


@contextmanager
def all_day(server: Server, chosen: Sequence[Activity]) -> Iterator[Mapping[str, Counter[str]]]:
    """Repeat the activities until the context ends, each in its own thread; yield their results
    by name.
    """
    over = threading.Event()
    results: dict[str, Counter[str]] = defaultdict(Counter)

    def repeat(activity: Activity) -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                result = activity.act(server)
            except (requests.RequestException, OSError) as error:
                result = type(error).__name__
            results[activity.name][result] += 1
            over.wait(max(0.0, began + activity.every_s - time.monotonic()))

    threads = [
        threading.Thread(target=repeat, args=(activity,), daemon=True) for activity in chosen
    ]
    for thread in threads:
        thread.start()
    try:
        yield results
    finally:
        over.set()
        for thread in threads:
            thread.join(2 * LIST_TIMEOUT_S)


def _sent(server: Server, request: Request) -> str:
    answer = server.send(request)
    return (
        OK
        if answer.status_code == MISSING.get(request.path, 200)
        else f"{request.path}: {answer.status_code}"
    )


def _rotating(requests: Sequence[Request]) -> Act:
    """Return an act that sends the next of these requests each time."""
    following = itertools.cycle(requests)
    return lambda server: _sent(server, next(following))


def _damaged() -> Act:
    """Return an act that sends the next damaged file each time."""
    names = itertools.cycle(expected_statuses())
    return lambda server: next(surprise(server.url, next(names)), OK)


def _everything(image: bytes) -> Request:
    return json_request(
        {"input_image": base64.b64encode(image).decode(), "points_per_side": 4}, "/everything"
    )


def _photos(numbers: Iterator[int]) -> list[str]:
    return [
        base64.b64encode(photo(number)).decode()
        for number in itertools.islice(numbers, LIST_IMAGES)
    ]


def _list(server: Server, images: list[str]) -> str:
    """Queue a list and ask for its job until all images are encoded."""
    accepted = server.post("/embed", images=images)
    if accepted.status_code != requests.codes.accepted:
        return f"{accepted.status_code}"
    job = Request(f"/embed/{accepted.json()['job']}")
    over = time.monotonic() + LIST_TIMEOUT_S
    progress = server.send(job).json()
    while progress["queued"] and time.monotonic() < over:
        time.sleep(0.5)
        progress = server.send(job).json()
    return (
        OK
        if progress["done"] == len(images)
        else str({name: progress[name] for name in ("queued", "failed")})
    )


def _cancelled_list(server: Server, images: list[str]) -> str:
    """Queue a list and cancel it."""
    accepted = server.post("/embed", images=images)
    if accepted.status_code != requests.codes.accepted:
        return f"{accepted.status_code}"
    answer = requests.delete(f"{server.url}/embed/{accepted.json()['job']}", timeout=60)
    return OK if answer.ok else f"DELETE: {answer.status_code}"


def _embedding(server: Server) -> str:
    """Get the embedding of a known image, which a click makes known."""
    image = photo(0)
    clicked = _sent(server, click(image))
    return (
        clicked
        if clicked != OK
        else _sent(server, Request(f"/embeddings/{hashlib.sha256(image).hexdigest()}"))
    )


def _cancelled(server: Server, image: bytes) -> str:
    """Leave while the image is read or encoded."""
    with socket.create_connection(("127.0.0.1", server.port), LIST_TIMEOUT_S) as connection:
        connection.sendall(click(image).data())
        time.sleep(random.uniform(0, 0.3))
    return OK


def _read_slowly(server: Server) -> str:
    """Read the beginning of an answer of 3 MB slowly, and leave."""
    prompts = [{"pos_coords": [[300, 200]]}] * 10
    fields = {"input_image": base64.b64encode(photo(1)).decode(), "prompts": prompts}
    large = json_request({**fields, "mask_format": "npy", "segmented_image": "none"})
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(LIST_TIMEOUT_S)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(large.data())
        status = connection.recv(12)[9:12].decode()
        over = time.monotonic() + SLOW_READ_S
        while status == "200" and time.monotonic() < over:
            time.sleep(0.2)
            if not connection.recv(4096):
                return "closed"
    return OK if status == "200" else status


def _send_half(server: Server) -> str:
    """Send half a head or half a body, and leave some seconds later."""
    data = click(photo(2)).data()
    with socket.create_connection(("127.0.0.1", server.port), LIST_TIMEOUT_S) as connection:
        connection.sendall(data[: random.choice((10, 60, len(data) // 2))])
        time.sleep(3)
    return OK
