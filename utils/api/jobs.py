"""`/embed/{job}`: progress of lists of images that are encoded in the background."""

import orjson
from starlette.types import Receive, Scope, Send

from utils.api.answers import json_response
from utils.background.encoder import BackgroundEncoder


class EmbedJobs:
    """ASGI application of the paths of jobs."""

    def __init__(self, encoder: BackgroundEncoder) -> None:
        self.encoder = encoder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the state of a job, which the method DELETE cancels first.

        Raises:
            UnknownPath: the caller has no such job.
        """
        job = scope["path"].rpartition("/")[2]
        state = await self.encoder.job(job, cancel=scope["method"] == "DELETE")
        response = json_response(orjson.dumps(state))
        response.headers["Cache-Control"] = "no-store"
        await response(scope, receive, send)
