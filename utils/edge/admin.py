"""Admin API (`/admin`): state and hot swap of the models. It exists only if there are admin
keys.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial

from starlette.types import Receive, Scope, Send

from utils.api.answers import json_response
from utils.api.responses import Model, ModelList
from utils.edge.keys import ApiKeys
from utils.errors import ModelChange
from utils.triton.models import Models
from utils.triton.versions import LOAD_ORDER

MODELS = "/admin/models"


class Admin:
    """ASGI application of the admin API."""

    def __init__(self, keys: ApiKeys, models: Models, control_mode: str) -> None:
        self._keys, self._models, self._control_mode = keys, models, control_mode
        self._actions: dict[str, Callable[[], Awaitable[None]]] = {f"{MODELS}/load": models.sync}
        for model in LOAD_ORDER:
            self._actions[f"{MODELS}/{model}/load"] = partial(models.load, model)
            self._actions[f"{MODELS}/{model}/unload"] = partial(models.unload, model)
        self.methods = {MODELS: ("GET", "HEAD"), **dict.fromkeys(self._actions, ("POST",))}
        """Methods of each path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the path's action, if any, and answer with the state of all models.

        Raises:
            Unauthorized: the request has no known admin key.
            ModelChange: the models cannot be changed.
            InferenceUnavailable: Triton cannot be reached.
        """
        self._keys.name_of(scope["headers"])
        action = self._actions.get(scope["path"])
        if action is not None:
            if self._control_mode != "explicit":
                raise ModelChange(
                    "loading and unloading models needs MOBILE_SAM_MODEL_CONTROL_MODE=explicit, "
                    f"got {self._control_mode}"
                )
            await action()
        models = [Model(**asdict(state)) for state in await self._models.states()]
        document = ModelList(models=models).model_dump_json()
        await json_response(document.encode())(scope, receive, send)
