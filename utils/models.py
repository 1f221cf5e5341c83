"""The models that this service's Triton has loaded, and loading and unloading them while it serves."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson

from utils import tensors
from utils.errors import InferenceUnavailable, ModelChange
from utils.versions import IN_ORDER, changes, follow

logger = logging.getLogger("bentoml.mobile_sam")

QUICK = 5.0
"""Seconds that Triton may take to say what is loaded."""
GONE = 60.0
"""Seconds that requests on a version may take to end once it is to be unloaded."""
TICK = 0.1


@dataclass(frozen=True)
class ModelState:
    """A version of a model, as Triton tells of it."""

    name: str
    version: int | None
    """None of a model that was never loaded."""
    state: str
    """`READY`, `LOADING`, `UNLOADING` or `UNAVAILABLE`; empty where it was never loaded."""
    reason: str = ""
    """Why it is unavailable."""


class Models:
    """Of one Triton, through its model-repository API."""

    def __init__(
        self, address: Callable[[], str], headers: dict[str, str], folders: tuple[Path, Path] | None, run_dir: Path
    ) -> None:
        """Remember where; nothing is asked yet.

        Args:
            address: gives host and port of Triton's HTTP, known once the service has started.
            headers: with the key of the restricted APIs.
            folders: the model repository and the folder of links to it that Triton reads; None where Triton reads
                from elsewhere.
            run_dir: where the service's processes share what they know.
        """
        self._address, self._headers, self._folders = address, headers, folders
        self._lock_file = run_dir / "models.lock"

    async def states(self) -> list[ModelState]:
        """Every version of every model.

        Raises:
            InferenceUnavailable: Triton cannot be reached.
        """
        found = orjson.loads((await self._post("index", QUICK)).content)
        return [
            ModelState(
                str(entry["name"]),
                int(entry["version"]) if entry.get("version") else None,
                str(entry.get("state", "")),
                str(entry.get("reason", "")),
            )
            for entry in found
        ]

    async def versions(self) -> list[int]:
        """The versions that answer requests, in rising order: the last is asked where a request names none.

        Raises:
            InferenceUnavailable: Triton cannot be reached.
        """
        return sorted(
            state.version
            for state in await self.states()
            if state.name == tensors.SEGMENT and state.state == "READY" and state.version is not None
        )

    async def renew(self, models: Sequence[str] = IN_ORDER) -> None:
        """Load versions that are new in the repository, and unload those that are no longer there.

        No request is dropped: a model's old version answers until its new one can; of a new version the models that
        others ask come first, and of one that goes last, when nobody asks them any more.

        Args:
            models: in the order in which they need one another.

        Raises:
            ModelChange: Triton could not load one, versions came and went at once, or models are being changed by
                another request.
            InferenceUnavailable: Triton cannot be reached.
        """
        with self._alone():
            new, gone = self._changes(models)
            if new and gone:  # Triton would do both at once, to models that others still ask
                raise ModelChange(
                    f"expected new versions to be loaded before old ones are removed, got {_listed(new)} new and "
                    f"{_listed(gone)} removed: put {_listed(gone)} back, load, and remove it then"
                )
            for model in reversed(models) if gone else models:
                if self._folders:
                    follow(*self._folders, model)
                await self._change(model, "load")
                await self._ended(model)

    async def unload(self, model: str) -> None:
        """Unload all versions of a model, once they have answered what they have begun.

        Raises:
            ModelChange: models are being changed by another request, or Triton refuses.
            InferenceUnavailable: Triton cannot be reached.
        """
        with self._alone():
            await self._change(model, "unload")
            await self._ended(model)

    def _changes(self, models: Sequence[str]) -> tuple[set[int], set[int]]:
        """The versions that came and those that went."""
        found = [changes(*self._folders, model) for model in models] if self._folders else []
        return {version for new, _ in found for version in new}, {version for _, gone in found for version in gone}

    async def _change(self, model: str, how: str) -> None:
        # Loading takes as long as it takes: TensorRT builds engines for minutes.
        answer = await self._post(f"models/{model}/{how}", None)
        if answer.is_error:
            logger.error("Triton could not %s %s: %s", how, model, answer.text)
            raise ModelChange(f"Triton could not {how} {model}; the service's log says why, and what was loaded stays")
        logger.info("%s: %sed", model, how)

    async def _ended(self, model: str) -> None:
        """Wait until no version of a model is about to go."""
        deadline = asyncio.get_running_loop().time() + GONE
        while any(state.name == model and state.state == "UNLOADING" for state in await self.states()):
            if asyncio.get_running_loop().time() > deadline:
                raise ModelChange(f"{model} still has requests {GONE:g} s after it was told to unload")
            await asyncio.sleep(TICK)

    async def _post(self, path: str, timeout: float | None) -> httpx.Response:
        try:
            # Neither a proxy of the environment nor certificates have to do with this machine's own Triton.
            async with httpx.AsyncClient(timeout=timeout, trust_env=False, verify=False) as client:  # noqa: S501
                return await client.post(f"http://{self._address()}/v2/repository/{path}", headers=self._headers)
        except (httpx.HTTPError, LookupError):
            raise InferenceUnavailable("the inference server is starting or restarting; try again") from None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock_file.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ModelChange("expected one change of the models at a time, got a second; try again") from None
            yield


def _listed(versions: set[int]) -> str:
    return ", ".join(map(str, sorted(versions)))
