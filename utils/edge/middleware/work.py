"""The work of a request: its slot, its time, and what becomes of other software's answers."""

from collections.abc import Callable, Collection
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.api.answers import problem_of
from utils.edge.admission import Admission, StartAnswer
from utils.edge.bodies import run_application
from utils.edge.limits import Limits
from utils.edge.request import request_of
from utils.errors import MEDIA_TYPE, Overloaded, Problem
from utils.integrations.adapter import Adapters
from utils.observability.context import caller
from utils.observability.metrics import Counts

REPLACED_HEADERS = {b"content-type", b"content-length"}


class SlotMiddleware:
    """Holds a slot while the work runs, and room for its answer while that is sent.

    An answer for which there is no room is refused before it starts. Answers without a length are
    streams: only one piece waits at a time.
    """

    def __init__(
        self,
        app: ASGIApp,
        admission: Admission,
        counts: Counts,
        adapters: Adapters,
        file_answers: Collection[str],
    ) -> None:
        """Store what the slot is taken from.

        Args:
            app: the further steps.
            admission: requests in progress, and the bytes of their answers.
            counts: metrics, which have the requests in progress too.
            adapters: annotation tools with their own forms of errors.
            file_answers: paths whose large answers are read from a file piece by piece, and so
                take no memory while they are sent.
        """
        self.app, self._admission, self._counts = app, admission, counts
        self._adapters, self._file_answers = adapters, file_answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on once it has a slot."""
        request = request_of(scope)
        from_file = request.route in self._file_answers
        with (
            self._admission.slot(caller(), request.ending.lose) as start_answer,
            self._counts.tracked_in_progress(),
        ):

            def refusal(message: Message) -> Problem | None:
                return _take_room_or_refuse(message, start_answer, from_file=from_file)

            answer = _ReplaceableAnswer(scope, receive, send, self._adapters, refusal)
            await self.app(scope, receive, answer)


class ForeignErrorsMiddleware:
    """Turns error answers of other software, such as BentoML's own, into problem documents.

    Annotation tools have their own forms of errors, which stay.
    """

    def __init__(self, app: ASGIApp, adapters: Adapters) -> None:
        self.app, self._adapters = app, adapters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the request answered."""
        if request_of(scope).route not in self._adapters.by_path:
            send = _ReplaceableAnswer(scope, receive, send, self._adapters, _foreign_error)
        await self.app(scope, receive, send)


class TimeLimitMiddleware:
    """Runs the work within a time limit, and until the caller disconnects."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the request answered by the application."""
        request = request_of(scope)
        timeout_s = self._limits.answer_timeout_s()
        # The body is no local variable, so that it is freed once the application has parsed it.
        await run_application(
            self.app,
            scope,
            request.take_content(),
            receive,
            send,
            timeout_s=timeout_s,
        )


class _ReplaceableAnswer:
    """The `send` of an application whose answer becomes a problem if it must not start."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        adapters: Adapters,
        problem_instead: Callable[[Message], Problem | None],
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._adapters, self._problem_instead = adapters, problem_instead
        self._is_replaced = False

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer, or the problem in place of all of it."""
        if self._is_replaced:
            return
        if message["type"] == "http.response.start":
            problem = self._problem_instead(message)
            if problem is not None:
                self._is_replaced = True
                route = request_of(self._scope).route
                response = self._adapters.error_response(route, problem)
                await response(self._scope, self._receive, self._send)
                return
        await self._send(message)


def _take_room_or_refuse(
    message: Message,
    start_answer: StartAnswer,
    *,
    from_file: bool,
) -> Problem | None:
    """Count an answer that starts, or return the problem if there is no room for it."""
    length = _headers(message).get(b"content-length")
    if message["status"] >= HTTPStatus.BAD_REQUEST or length is None:
        return None
    try:
        start_answer(0 if from_file else int(length))
    except Overloaded as error:
        return problem_of(error)
    return None


def _foreign_error(message: Message) -> Problem | None:
    """Return the problem in place of an error that is no problem document."""
    status, headers = message["status"], _headers(message)
    is_problem = headers.get(b"content-type", b"").startswith(MEDIA_TYPE.encode())
    if status < HTTPStatus.BAD_REQUEST or is_problem:
        return None
    phrase = HTTPStatus(status).phrase
    slug = phrase.lower().replace(" ", "-")
    other_headers = {}
    for name, value in headers.items():
        if name not in REPLACED_HEADERS:
            other_headers[name.decode("latin-1")] = value.decode("latin-1")
    return Problem(status, slug, phrase, phrase, headers=other_headers)


def _headers(message: Message) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in message.get("headers", ())}
