"""What all callers share, held by attackers from several addresses, and a newcomer who has none
of it.
"""

import base64
import hashlib
import io
import os
import re
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import requests
from PIL import Image

from harness import Server, envoy, nginx
from harness.load import JSON, Request, json_request
from tests.chaos import hostile
from tests.chaos.callers import photo
from tests.chaos.figures import Figure, Start, died, listed, not_run, ready_afterwards, restarts
from tests.chaos.newcomer import ADDRESS as NEWCOMER
from tests.chaos.newcomer import KNOWN, Ask, Newcomer, Seen
from tests.chaos.origins import origin
from tests.chaos.tool_requests import label_config
from utils.settings import INTEGRATIONS

COUNTS = (2, 4, 16)
"""Numbers of attacking addresses, or keys."""
ATTACK_S, ALONE_S = 17.0, 5.0
BEFORE_S = 7.0
"""Time in which the attackers take what they can, before the newcomer arrives."""
REST_S = 3.0
"""Time between two attacks."""
EVERYTHING_CONNECTIONS, READING_CONNECTIONS, FETCHING_CONNECTIONS, LISTING_CONNECTIONS = (
    64,
    32,
    24,
    16,
)
UPLOADS_PER_ADDRESS = 12
UPLOAD_BYTES = 2**25
READ_BYTES_PER_S = 5000 // READING_CONNECTIONS
NEWCOMERS_IMAGES = 4
CACHE_BYTES = 2**29
"""Size of the cache: half of it is the queue's, about 120 images."""
QUEUED_IMAGES = 80
"""Images of all attackers' lists and one more; a longer list is above a caller's share, and is
refused by itself."""
FETCH_S = 1.0
NAMES = ("newcomer", *(f"attacker{number}" for number in range(max(COUNTS))))
KEYS = {name: f"{name}-key-of-24-letters......" for name in NAMES}
NETWORK = "fd00:52::"
"""The /64 network of the IPv6 attackers; addresses of this machine while a scenario runs."""


@dataclass(frozen=True)
class Attack:
    """What attackers do, and what else a newcomer asks for."""

    name: str
    attempt: hostile.Attempt
    more: Callable[[int, Sequence[str], int], tuple[Any, ...]]
    """Function of the service's port, the attackers' addresses and their number; returns the
    attempt's arguments."""
    connections: Callable[[int], int]
    """Function of the number of attackers."""
    ask: Ask | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the newcomer."""
    one_address: bool = False
    """Attackers differ by their keys."""


AnAttack = Callable[[], AbstractContextManager[Attack]]
Front = Callable[[Server], AbstractContextManager[int]]
"""Context manager of a proxy in front of a service; yields the port that callers use."""


def ipv4(count: int) -> list[str]:
    """Return so many addresses of this machine."""
    return [f"127.0.0.{number + 2}" for number in range(count)]


@contextmanager
def slots() -> Iterator[Attack]:
    """Ask for everything, over 64 connections in all."""

    def everything(port: int, addresses: Sequence[str], _: int) -> tuple[Any, ...]:
        requests = [
            json_request({"input_image": base64.b64encode(photo(number)).decode()}, "/everything")
            for number in range(len(addresses))
        ]
        return requests, addresses

    yield Attack(
        "slots: /everything", hostile.flood_requests, everything, lambda _: EVERYTHING_CONNECTIONS
    )


@contextmanager
def bodies() -> Iterator[Attack]:
    """Send uploads of 32 MiB without their last byte, twelve from each address."""

    def uploads(port: int, addresses: Sequence[str], _: int) -> tuple[Any, ...]:
        return UPLOAD_BYTES, addresses

    yield Attack(
        "bodies: uploads one byte short",
        hostile.hold_uploads,
        uploads,
        lambda n: UPLOADS_PER_ADDRESS * n,
    )


@contextmanager
def answers() -> Iterator[Attack]:
    """Read masks of 6 to 72 MB, and the decoder, at 5 kB per second in all."""
    image = _plain_image()

    def masks(objects: int, source: Mapping[str, str]) -> Request:
        prompts = [{"pos_coords": [[9, 9]]}] * objects
        return json_request(
            {**source, "prompts": prompts, "mask_format": "npy", "segmented_image": "none"}
        )

    known = {"image_id": hashlib.sha256(image).hexdigest()}
    own = masks(1, {"input_image": base64.b64encode(image).decode()})

    def large(port: int, addresses: Sequence[str], _: int) -> tuple[Any, ...]:
        answer = requests.post(f"http://127.0.0.1:{port}/embed", files={"image": image}, timeout=60)
        answer.raise_for_status()
        # Small ones fill the room that large ones leave.
        return [
            masks(12, known),
            masks(1, known),
            Request("/decoder.onnx"),
            masks(1, known),
            masks(4, known),
        ], addresses

    def one(session: requests.Session, url: str) -> str:
        return _reason(session.post(f"{url}/mobile_sam", own.body, headers=JSON, timeout=60))

    attempt = partial(hostile.read_slowly, bytes_per_s=READ_BYTES_PER_S)
    ask = Ask("answers of 6 MB", one)
    yield Attack("answers: read slowly", attempt, large, lambda _: READING_CONNECTIONS, ask)


@contextmanager
def queue() -> Iterator[Attack]:
    """Refill the queue of images with lists, by key."""
    settings = {
        "MOBILE_SAM_API_KEYS": ",".join(f"{name}:{key}" for name, key in KEYS.items()),
        "MOBILE_SAM_EMBEDDING_CACHE_BYTES": str(CACHE_BYTES),
    }

    def lists(port: int, addresses: Sequence[str], attackers: int) -> tuple[Any, ...]:
        keys = [KEYS[name] for name in NAMES[1 : attackers + 1]]
        images = _small_images(QUEUED_IMAGES // (attackers + 1))
        requests = [
            json_request({"images": images}, "/embed", {"X-API-Key": key}, _other_images)
            for key in keys
        ]
        return requests, addresses

    few = json_request({"images": _small_images(NEWCOMERS_IMAGES)}, "/embed", renew=_other_images)

    def four(session: requests.Session, url: str) -> str:
        answer = session.post(f"{url}/embed", few.content(), headers=JSON, timeout=60)
        # Cancelled, so that the newcomer never has more than one list.
        if answer.status_code == 202:
            session.delete(f"{url}/embed/{answer.json()['job']}", timeout=60)
            return "ok"
        return _reason(answer)

    yield Attack(
        "queue: refilling lists by key",
        hostile.flood_requests,
        lists,
        lambda _: LISTING_CONNECTIONS,
        Ask("lists of 4 images", four),
        settings,
        {"X-API-Key": KEYS["newcomer"]},
        one_address=True,
    )


@contextmanager
def fetches() -> Iterator[Attack]:
    """Name images of a server that drips, in Label Studio's requests."""
    with origin(KNOWN) as quick, origin(photo(1), every_s=1.0) as dripping:
        numbers = iter(range(10**6))

        def drip(port: int, addresses: Sequence[str], _: int) -> tuple[Any, ...]:
            tasks = [_predict(f"{dripping}/{number}.jpg") for number in range(FETCHING_CONNECTIONS)]
            return [json_request(task, "/label-studio/predict") for task in tasks], addresses

        def one(session: requests.Session, url: str) -> str:
            answer = session.post(
                f"{url}/label-studio/predict", json=_predict(f"{quick}/{next(numbers)}"), timeout=60
            )
            return answer.json().get("error", "ok")[:80] if answer.ok else _reason(answer)

        yield Attack(
            "fetches: an origin that drips",
            hostile.flood_requests,
            drip,
            lambda _: FETCHING_CONNECTIONS,
            Ask("Label Studio predictions", one, FETCH_S),
            {
                "MOBILE_SAM_INTEGRATIONS": ",".join(INTEGRATIONS),
                "MOBILE_SAM_IMAGE_ORIGINS": f"{quick},{dripping}",
            },
        )


ATTACKS: dict[str, AnAttack] = {
    "slots": slots,
    "bodies": bodies,
    "answers": answers,
    "queue": queue,
    "fetches": fetches,
}


@contextmanager
def direct(server: Server) -> Iterator[int]:
    """Yield the service's own port."""
    yield server.port


@contextmanager
def behind_nginx(server: Server) -> Iterator[int]:
    """Run nginx in front of a service."""
    with (
        tempfile.TemporaryDirectory() as folder,
        nginx.running(Path(folder) / "nginx", server.port) as proxy,
    ):
        yield proxy.port


@contextmanager
def behind_envoy(server: Server) -> Iterator[int]:
    """Run Envoy in front of a service."""
    with tempfile.TemporaryDirectory() as folder:
        proxy = envoy.start(Path(folder), [server.port])
        try:
            yield proxy.wait_until_ready().port
        finally:
            proxy.stop()


def crowded(
    start: Start,
    attack: AnAttack,
    counts: Sequence[int] = COUNTS,
    *,
    front: Front = direct,
    addresses: Callable[[int], list[str]] = ipv4,
    absorbed: bool = False,
    seconds: float = ATTACK_S,
) -> Iterator[Figure]:
    """Attack from each number of addresses, and measure a newcomer beside the attackers.

    Args:
        start: starts services.
        attack: the attack.
        counts: numbers of attackers, in ascending order: the first ones of each are those of the
            one before.
        front: what is in front of the service.
        addresses: function of the number of attackers.
        absorbed: what is in front of the service keeps the attack from it.
        seconds: length of each attack.
    """
    with attack() as chosen, start(**chosen.settings) as server, front(server) as port:
        newcomer = Newcomer(port, chosen.ask, dict(chosen.headers))
        with newcomer.there() as alone:
            time.sleep(ALONE_S)
        workers, restarted = server.workers(), restarts(server)
        for count in counts:
            seen, counted = beside(newcomer, chosen, port, addresses(count), count, seconds=seconds)
            kind = "keys" if chosen.one_address else "addresses"
            name = f"{chosen.name}, {chosen.connections(count)} connections, {count} {kind}"
            label = f"attackers' attempts with success, or open at the end ({listed(counted, 4)})"
            # The others may still have all that they can get from the attack before.
            yield Figure(name, label, successes(counted), count // 2, at_least=True)
            callers = 1 if chosen.one_address else count
            answered = any(result[:1].isdigit() for result in counted)
            yield from _seen_attackers(name, server, 0 if absorbed else callers, logged=answered)
            yield from newcomer.figures(name, alone, seen, count)
            yield Figure(name, "restarts of Triton", restarts(server) - restarted, 0)
            yield died(name, server, workers)
            time.sleep(REST_S)
            yield ready_afterwards(name, server)


def beside(
    newcomer: Newcomer,
    attack: Attack,
    port: int,
    addresses: Sequence[str],
    attackers: int,
    *,
    seconds: float,
) -> tuple[Seen, Counter[str]]:
    """Return what becomes of a newcomer's requests beside the attackers, and of the attackers'
    attempts.
    """
    own = addresses[:1] if attack.one_address else addresses
    more = attack.more(port, own, attackers)
    with hostile.attacking(
        attack.attempt, port, attack.connections(attackers), seconds, *more
    ) as running:
        time.sleep(BEFORE_S)
        with newcomer.there() as seen:
            counted = running.result()
    return seen, counted


def successes(attempts: Counter[str]) -> int:
    """Return the number of attempts that hold something at the end, or had an answer."""
    return sum(
        number
        for result, number in attempts.items()
        if result.startswith("2") or result == hostile.OPEN
    )


def _seen_attackers(name: str, server: Server, expected: int, *, logged: bool) -> Iterator[Figure]:
    """Yield figures of the attackers' addresses in the service's log, of all attacks so far.

    Args:
        name: name of the attack.
        server: the service.
        expected: number of attackers; 0: none of them reaches the service.
        logged: some requests were answered. Those that attackers leave unanswered are not logged.
    """
    lines = re.findall(r"\] (\S+?)(?::\d+)? (?:\(scheme=|[A-Z]+ /)", server.log.read_text())
    seen = set(lines) - {NEWCOMER, hostile.LOCAL}
    if expected and logged:
        yield Figure(
            name, f"attackers in the service's log, of {expected}", len(seen), 1, at_least=True
        )
    yield Figure(
        name,
        f"more attackers in the service's log than {expected}",
        max(0, len(seen) - expected),
        0,
    )


def proxied(
    start: Start, front: Front, absorbed: Container[str] = (), counts: Sequence[int] = COUNTS
) -> Iterator[Figure]:
    """Run all attacks through a proxy.

    Args:
        start: starts services.
        front: the proxy.
        absorbed: attacks that the proxy keeps from the service.
        counts: numbers of attackers.
    """
    name = front.__name__.replace("_", " ")
    if front is behind_nginx and not nginx.installed():
        yield not_run(f"sharing, {name}", "nginx is not installed")
        return
    for kind, attack in ATTACKS.items():
        for figure in crowded(start, attack, counts, front=front, absorbed=kind in absorbed):
            yield replace(figure, scenario=f"{name}: {figure.scenario}")


def ipv6(start: Start) -> Iterator[Figure]:
    """Attack from one host with an IPv4 and an IPv6 address, and from four addresses of one /64,
    through nginx.
    """
    if not (nginx.installed() and _has_ipv6()):
        yield not_run(
            "sharing, IPv6", "needs nginx, and addresses of an IPv6 network on this machine"
        )
        return
    hosts: dict[str, tuple[int, Callable[[int], list[str]]]] = {
        "an IPv4 and an IPv6 address": (2, lambda _: ["127.0.0.2", f"{NETWORK}2"]),
        "four addresses of one /64": (
            1,
            lambda _: [f"{NETWORK}{number}" for number in range(2, 6)],
        ),
    }
    for host, (callers, addresses) in hosts.items():
        for figure in crowded(start, slots, (callers,), front=behind_nginx, addresses=addresses):
            yield replace(figure, scenario=f"{host}: {figure.scenario}")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as own:
            own.bind((f"{NETWORK}2", 0))
    except OSError:
        return False
    return True


def _predict(url: str) -> dict[str, Any]:
    """Return Label Studio's request for the masks of one box on the image at a URL."""
    region = {
        "type": "rectanglelabels",
        "value": {"x": 25, "y": 25, "width": 50, "height": 50, "labels": ["Object"]},
        "original_width": 640,
        "original_height": 480,
    }
    task = {"id": 1, "annotations": [{"result": [region]}], "data": {"image": url}}
    return {"label_config": label_config("segment", 0), "tasks": [task]}


def _small_images(count: int) -> list[str]:
    """Return a list of images in base64, for `_other_images`."""
    images = []
    for number in range(count):
        file = io.BytesIO()
        Image.new("RGB", (64, 48), (number, 0, 0)).save(file, "PNG")
        file.write(bytes(-file.tell() % 3))  # so that base64 can be appended
        images.append(base64.b64encode(file.getvalue()).decode())
    return images


def _other_images(body: bytes) -> bytes:
    """Append random bytes to each image file of a list: the service encodes a known image only
    once.
    """
    return re.sub(rb'"(?=[,\]])', lambda _: base64.b64encode(os.urandom(9)) + b'"', body)


def _plain_image() -> bytes:
    """Return a JPEG file of 6 megapixels."""
    file = io.BytesIO()
    Image.new("RGB", (3000, 2000), (90, 120, 60)).save(file, "JPEG")
    return file.getvalue()


def _reason(answer: requests.Response) -> str:
    """Return `ok`, or the status of an answer and its problem's type."""
    if answer.ok:
        return "ok"
    try:
        return f"{answer.status_code} {str(answer.json()['type']).rpartition(':')[2]}"
    except (ValueError, KeyError):
        return str(answer.status_code)
