"""Admin API (`/admin`): state and hot swap of the models. It exists only if there are admin keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict

import orjson
from starlette.types import Receive, Scope, Send

from utils.api.answers import json_response
from utils.api.errors import ModelChange
from utils.edge.guard import Guard
from utils.triton.models import Models
from utils.triton.versions import LOAD_ORDER

MODELS = "/admin/models"
Action = Callable[[], Awaitable[None]]


class Admin:
    """ASGI application of the admin API."""

    def __init__(self, guard: Guard, models: Models, control_mode: str) -> None:
        """Map the paths to their actions.

        Args:
            guard: checks the admin keys.
            models: the models of the service's Triton.
            control_mode: Triton's model control mode: `none`, `explicit` or `poll`.
        """
        self._guard, self._models, self._control_mode = guard, models, control_mode
        self.actions: dict[str, Action] = {f"{MODELS}/load": models.sync}
        """Action of a POST, by path."""
        for model in LOAD_ORDER:
            self.actions[f"{MODELS}/{model}/load"] = self._load_one(model)
            self.actions[f"{MODELS}/{model}/unload"] = self._unload_one(model)

    def methods(self) -> dict[str, tuple[str, ...]]:
        """Return the methods of each path."""
        return {MODELS: ("GET", "HEAD"), **dict.fromkeys(self.actions, ("POST",))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the path's action, if any, and answer with the state of all models.

        Raises:
            Unauthorized: the request has no known admin key.
            ModelChange: the models cannot be changed.
            InferenceUnavailable: Triton cannot be reached.
        """
        self._guard.authenticate(scope)
        action = self.actions.get(scope["path"])
        if action is not None:
            if self._control_mode != "explicit":
                raise ModelChange(
                    "loading and unloading models needs MOBILE_SAM_MODEL_CONTROL_MODE=explicit, "
                    f"got {self._control_mode}"
                )
            await action()
        states = [asdict(state) for state in await self._models.states()]
        await json_response(orjson.dumps({"models": states}))(scope, receive, send)

    def _load_one(self, model: str) -> Action:
        return lambda: self._models.load(model)

    def _unload_one(self, model: str) -> Action:
        return lambda: self._models.unload(model)
