"""The models that this service's Triton has loaded, and loading and unloading them while it serves."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson

from utils import tensors
from utils.errors import InferenceUnavailable, ModelChange
from utils.versions import IN_ORDER, changes, follow, missing, unlink, versions

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

    async def states(self, *, ready: bool = False) -> list[ModelState]:
        """Every version of every model, or those that are ready.

        Raises:
            InferenceUnavailable: Triton cannot be reached.
        """
        # Of what is ready Triton knows without a look at the repository.
        found = orjson.loads((await self._post("index", QUICK, {"ready": ready})).content)
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
        ready = [(state.name, state.version) for state in await self.states(ready=True)]
        by_model = [{version for name, version in ready if name == model and version} for model in tensors.MODELS]
        return sorted(set.intersection(*by_model))

    async def renew(self) -> None:
        """Load versions that are new in the repository, and unload those that are no longer there.

        No request is dropped: a model's old version answers until its new one can; of a new version the models that
        others ask come first, and of one that goes last, when nobody asks them any more.

        Raises:
            ModelChange: a version is not whole, or Triton could not load it; versions came and went at once, or all
                went; or models are being changed by another request.
            InferenceUnavailable: Triton cannot be reached.
        """
        with self._alone():
            new, gone = await asyncio.to_thread(self._checked_changes)
            try:
                for model in reversed(IN_ORDER) if gone else IN_ORDER:
                    if self._folders:
                        follow(*self._folders, model)
                    await self._change(model, "load")
                    await self._ended(model)
            except (ModelChange, InferenceUnavailable):
                for version in new:  # a Triton that is started again must not meet it
                    self._hide(version)
                raise

    async def load(self, model: str) -> None:
        """Load a model again, in the versions that it had.

        Raises:
            ModelChange: Triton could not, or models are being changed by another request.
            InferenceUnavailable: Triton cannot be reached.
        """
        with self._alone():
            await self._change(model, "load")

    async def unload(self, model: str) -> None:
        """Unload all versions of a model, once they have answered what they have begun.

        Raises:
            ModelChange: models are being changed by another request, or Triton refuses.
            InferenceUnavailable: Triton cannot be reached.
        """
        with self._alone():
            await self._change(model, "unload")
            await self._ended(model)

    def _checked_changes(self) -> tuple[set[int], set[int]]:
        """The versions that came, which are whole, and those that went."""
        if self._folders is None:
            return set(), set()
        found = [changes(*self._folders, model) for model in IN_ORDER]
        new = {version for came, _ in found for version in came}
        gone = {version for _, went in found for version in went}
        for version in new:
            if absent := missing(self._folders[0], version):
                path = absent[0].relative_to(self._folders[0])
                raise ModelChange(f"expected all of version {version}, got one without {path}")
        if new and gone:  # Triton would do both at once, to models that others still ask
            raise ModelChange(
                f"expected new versions to be loaded before old ones are removed, got {_listed(new)} new and "
                f"{_listed(gone)} removed: put {_listed(gone)} back, load, and remove it then"
            )
        if gone and not versions(self._folders[0]):
            raise ModelChange(f"expected at least one version to stay, got {_listed(gone)} removed and none left")
        return new, gone

    def _hide(self, version: int) -> None:
        if self._folders:
            for model in IN_ORDER:
                unlink(self._folders[1], model, version)

    async def _change(self, model: str, how: str) -> None:
        # Loading takes as long as it takes: TensorRT builds engines for minutes.
        answer = await self._post(f"models/{model}/{how}", None)
        if answer.is_error:
            logger.error("Triton could not %s %s: %s", how, model, answer.text)
            raise ModelChange(f"Triton could not {how} {model}; the service's log says why, and what was loaded stays")
        logger.info("%s: %s done", model, how)

    async def _ended(self, model: str) -> None:
        """Wait until no version of a model is about to go."""
        deadline = asyncio.get_running_loop().time() + GONE
        while any(state.name == model and state.state == "UNLOADING" for state in await self.states()):
            if asyncio.get_running_loop().time() > deadline:
                raise ModelChange(f"{model} still has requests {GONE:g} s after it was told to unload")
            await asyncio.sleep(TICK)

    async def _post(self, path: str, timeout: float | None, asked: dict[str, bool] | None = None) -> httpx.Response:
        try:
            # Neither a proxy of the environment nor certificates have to do with this machine's own Triton.
            async with httpx.AsyncClient(timeout=timeout, trust_env=False, verify=False) as client:  # noqa: S501
                url = f"http://{self._address()}/v2/repository/{path}"
                return await client.post(url, headers=self._headers, json=asked or {})
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
