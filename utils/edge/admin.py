"""`/admin`: which models are loaded, and hot swap, for operators with a key. Without keys there is no such path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict

import orjson
from starlette.types import Receive, Scope, Send

from utils.answers import json_response
from utils.edge.guard import Guard
from utils.errors import ModelChange
from utils.models import Models
from utils.versions import LOAD_ORDER

MODELS = "/admin/models"
Action = Callable[[], Awaitable[None]]


class Admin:
    """The operators' paths."""

    def __init__(self, guard: Guard, models: Models, control_mode: str) -> None:
        """Make them.

        Args:
            guard: who is an operator.
            models: of the service's Triton.
            control_mode: of that Triton: `none`, `explicit` or `poll`.
        """
        self._guard, self._models, self._control_mode = guard, models, control_mode
        self.actions: dict[str, Action] = {f"{MODELS}/load": models.sync}
        """What a POST of each path does."""
        for model in LOAD_ORDER:
            self.actions[f"{MODELS}/{model}/load"] = self._load_one(model)
            self.actions[f"{MODELS}/{model}/unload"] = self._unload_one(model)

    def methods(self) -> dict[str, tuple[str, ...]]:
        """The methods of each path."""
        return {MODELS: ("GET", "HEAD"), **dict.fromkeys(self.actions, ("POST",))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of one of the paths with the state of all models.

        Raises:
            Unauthorized: no admin key came, or one that is not known.
            ModelChange: the models cannot be changed, or not so.
            InferenceUnavailable: Triton cannot be reached.
        """
        self._guard.name(scope)
        action = self.actions.get(scope["path"])
        if action is not None:
            if self._control_mode != "explicit":
                raise ModelChange(
                    f"expected MOBILE_SAM_MODEL_CONTROL_MODE=explicit, got {self._control_mode}: "
                    "models cannot be loaded and unloaded by request"
                )
            await action()
        states = [asdict(state) for state in await self._models.states()]
        await json_response(orjson.dumps({"models": states}))(scope, receive, send)

    def _load_one(self, model: str) -> Action:
        return lambda: self._models.load(model)

    def _unload_one(self, model: str) -> Action:
        return lambda: self._models.unload(model)
