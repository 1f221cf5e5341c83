"""Models loaded in Triton: listing, loading and unloading them while the service runs."""

import asyncio
import contextlib
import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from orchestrator import tensors
from utils.errors import InferenceUnavailable, ModelChange
from utils.observability.context import ADDRESS
from utils.observability.logs import ERROR_LOG, logger
from utils.triton.run import RunState
from utils.triton.versions import (
    LOAD_ORDER,
    Deployment,
    MixedWeights,
    missing_files,
    read_record,
    versions,
)
from utils.triton.watchdog.probes import LocalTriton, check_engines

INDEX_TIMEOUT_S = 5.0
"""Time for Triton to list its models."""
UNLOAD_TIMEOUT_S = 60.0
"""Time for the running requests of an unloading version to finish."""
CHECK_TIMEOUT_S = 60.0
"""Time for each inference of the check of a new version, which queues behind callers' requests."""
POLL_INTERVAL_S = 0.1
SHOWN_SHA256_DIGITS = 12


@dataclass(frozen=True)
class ModelState:
    """State of a version of a model."""

    name: str
    version: int | None
    """None if the model was never loaded."""
    state: str
    """As Triton names it, such as `READY`; empty if it was never loaded."""
    reason: str
    """Why the version is unavailable; else empty."""

    @classmethod
    def from_index(cls, entry: Mapping[str, Any]) -> "ModelState":
        """Return the state in an entry of Triton's list, which leaves out what it does not know."""
        version = entry.get("version")
        return cls(
            entry["name"],
            int(version) if version else None,
            entry.get("state", ""),
            entry.get("reason", ""),
        )


@dataclass(frozen=True)
class Models:
    """Client of Triton's model-repository API.

    Methods raise `InferenceUnavailable` if Triton cannot be reached. `sync`, `load` and `unload`
    raise `ModelChange` if Triton fails to load or unload a model, or another request is changing
    the models.
    """

    address: Callable[[], str]
    """Returns host and port of Triton's HTTP, known once the service has started."""
    run: RunState
    """Shared state of the service's processes."""
    deployment: Deployment | None
    """Triton's folder of links to snapshots; None if it reads a remote repository."""
    is_configured: Callable[[], bool] = lambda: True
    """Returns whether the weights in the repository can run in the configuration of that folder."""

    async def states(self, *, ready: bool = False) -> list[ModelState]:
        """Return all versions of all models, or only the ready ones."""
        # For ready ones, Triton does not scan the repository.
        response = await self._post("index", INDEX_TIMEOUT_S, {"ready": ready})
        return [ModelState.from_index(entry) for entry in response.json()]

    async def versions(self) -> list[int]:
        """Return the versions that all orchestrator models have ready, ascending.

        The last one is the default.
        """
        ready = [(state.name, state.version) for state in await self.states(ready=True)]
        by_model = [
            {version for name, version in ready if name == model and version}
            for model in tensors.MODELS
        ]
        return sorted(set.intersection(*by_model))

    async def sync(self) -> None:
        """Load versions added to the repository, and unload removed ones.

        No request is dropped: a model's old version answers until the new one is ready. The models
        that others call are loaded first and unloaded last.

        Raises:
            ModelChange: a version is incomplete or computes wrong masks, versions were added and
                removed at once, or no version is left.
        """
        with self._exclusive():
            new, removed = await asyncio.to_thread(self._checked_changes)
            before, snapshots = await asyncio.to_thread(self._take, new)
            loaded: list[str] = []
            try:
                for model in reversed(LOAD_ORDER) if removed else LOAD_ORDER:
                    if self.deployment:
                        self.deployment.show(snapshots, [model])
                        self.deployment.hide(removed, [model])
                    loaded.append(model)
                    await self._change(model, "load")
                    await self._wait_unloaded(model)
                    if model == tensors.DECODER:  # no caller uses the new versions yet
                        await self._check_engines(new)
            except (ModelChange, InferenceUnavailable):
                if self.deployment:  # a restarted Triton loads what was there before
                    self.deployment.restore(before)
                    self.deployment.hide(new - {version for _, version in before})
                if before:  # the other models would call these under the name of the old weights
                    await self._load_again(loaded)
                raise
            finally:
                if self.deployment:
                    await asyncio.to_thread(self.deployment.remove_unused)

    async def _load_again(self, models: Sequence[str]) -> None:
        """Load models as they were before; one that cannot be loaded keeps what it has."""
        for model in models:
            with contextlib.suppress(ModelChange, InferenceUnavailable):
                await self._change(model, "load")

    async def load(self, model: str) -> None:
        """Load a model again, in the same versions."""
        with self._exclusive():
            await self._change(model, "load")

    async def unload(self, model: str) -> None:
        """Unload all versions of a model after their running requests."""
        with self._exclusive():
            await self._change(model, "unload")
            await self._wait_unloaded(model)

    def _take(self, new: set[int]) -> tuple[dict[tuple[str, int], Path], dict[int, Path]]:
        """Take a snapshot of new versions.

        Return the links of those that they replace, and the snapshots' folders.

        Raises:
            ModelChange: the snapshot cannot be written, or the files of a version are of different
                weights.
        """
        if self.deployment is None:
            return {}, {}
        links = self.deployment.links()
        before = {link: target for link, target in links.items() if link[1] in new}
        try:
            return before, self.deployment.take(new)
        except OSError as error:
            reason = error.strerror or error
            raise ModelChange(f"version {_listed(new)} cannot be copied: {reason}") from None
        except MixedWeights as error:
            raise ModelChange(f"version {_listed(new)} is not used: {error}") from None

    def _checked_changes(self) -> tuple[set[int], set[int]]:
        """Return the versions added to the repository and those removed from it.

        Raises:
            ModelChange: they cannot be applied.
        """
        if self.deployment is None:
            return set(), set()
        repository, (new, removed) = self.deployment.repository, self.deployment.changes()
        for version in new:
            if missing := missing_files(repository, version):
                raise ModelChange(
                    f"version {version} is incomplete: {missing[0].relative_to(repository)} is"
                    " missing"
                )
        if new and not self.is_configured():
            raise ModelChange(
                f"version {_listed(new)} needs another engine, batch or number of encoders than the"
                " running service has: restart it"
            )
        if new and removed:  # Triton would do both at once, while other models still call these
            raise ModelChange(
                f"new versions must be loaded before old ones are removed, got {_listed(new)} new"
                f" and {_listed(removed)} removed: put {_listed(removed)} back, load, then remove"
                " again"
            )
        if removed and not versions(repository):
            raise ModelChange(
                f"at least one version must stay, got {_listed(removed)} removed and none left"
            )
        return new, removed

    async def _check_engines(self, versions: set[int]) -> None:
        port = int(self.address().rpartition(":")[2])
        triton = LocalTriton(port, self.run.key_header, self.run.metrics_port)
        for version in versions:
            try:
                await asyncio.to_thread(check_engines, triton, CHECK_TIMEOUT_S, version)
            except Exception as error:
                raise ModelChange(f"version {version} is not used: {error}") from None

    async def _change(self, model: str, action: str) -> None:
        # No timeout: an engine may be built for minutes as its model is loaded.
        response = await self._post(f"models/{model}/{action}", None)
        if response.is_error:
            line = f"Triton could not {action} {model}: {response.text}"
            ERROR_LOG.log(f"Triton: {action} of {model}", line, ADDRESS.get(""))
            raise ModelChange(
                f"Triton could not {action} {model}; what was loaded stays loaded: see the"
                " service's log"
            )
        weights = f": {self._described(model)}" if action == "load" and self.deployment else ""
        logger.info("%s: %s done%s", model, action, weights)

    def _described(self, model: str) -> str:
        """Return the versions of a model that Triton reads, with the names and the beginnings of
        SHA-256 of weights.
        """
        assert self.deployment
        described = []
        for (name, version), folder in sorted(self.deployment.links().items()):
            if name == model:
                record = read_record(folder.parent / tensors.SEGMENT)
                sha256 = str(record.get("sha256", "unknown"))[:SHOWN_SHA256_DIGITS]
                described.append(
                    f"version {version} {record.get('name', 'unknown')} (SHA-256 {sha256})"
                )
        return ", ".join(described)

    async def _wait_unloaded(self, model: str) -> None:
        """Wait until no version of a model is unloading."""
        deadline = asyncio.get_running_loop().time() + UNLOAD_TIMEOUT_S
        while any(
            state.name == model and state.state == "UNLOADING" for state in await self.states()
        ):
            if asyncio.get_running_loop().time() > deadline:
                raise ModelChange(
                    f"{model} still has running requests after {UNLOAD_TIMEOUT_S:g} s of unloading"
                )
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _post(
        self, path: str, timeout: float | None, body: dict[str, bool] | None = None
    ) -> httpx.Response:
        try:
            # Triton is local: neither proxies nor certificates apply.
            async with httpx.AsyncClient(timeout=timeout, trust_env=False, verify=False) as client:  # noqa: S501
                url = f"http://{self.address()}/v2/repository/{path}"
                return await client.post(url, headers=self.run.key_header, json=body or {})
        except (httpx.HTTPError, LookupError):
            raise InferenceUnavailable(
                "the inference server is starting or restarting; retry later"
            ) from None

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with Path(self.run.folder, "models.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ModelChange("another request is changing the models; retry later") from None
            yield


def _listed(versions: set[int]) -> str:
    return ", ".join(map(str, sorted(versions)))
