"""Who may call: origins, keys and rates."""

import pytest

from tests.unit.utils.edge.middleware.calls import PATHS, Application, ask
from utils.edge.keys import ApiKeys
from utils.edge.middleware.access import ApiKeyMiddleware, OriginMiddleware, RateLimitMiddleware
from utils.edge.origins import Origins
from utils.edge.rate import RateLimit
from utils.errors import ForeignPage, TooManyRequests, Unauthorized
from utils.observability.context import KEY_NAME

KEY = "a-key-of-enough-characters"
FOREIGN = [(b"host", b"service"), (b"origin", b"https://foreign.example")]


@pytest.mark.parametrize(
    ("path", "method"),
    [
        pytest.param("/work", "POST", id="work"),
        pytest.param("/work", "GET", id="work-that-is-read"),
        pytest.param("/admin", "DELETE", id="change"),
    ],
)
async def test_foreign_page_neither_works_nor_changes_anything(path, method):
    app = Application()
    with pytest.raises(ForeignPage):
        await ask(OriginMiddleware(app, Origins(), PATHS), path, method, headers=FOREIGN)
    assert not app.requests


async def test_foreign_page_reads_pages():
    app = Application()
    await ask(OriginMiddleware(app, Origins(), PATHS), "/page", "GET", headers=FOREIGN)
    assert app.requests


class CallerReader:
    """An application that notes the callers of its requests."""

    def __init__(self) -> None:
        self.callers: list[str] = []

    async def __call__(self, scope, receive, send):
        self.callers.append(KEY_NAME.get())


async def test_work_needs_a_key_which_names_its_caller():
    app = CallerReader()
    step = ApiKeyMiddleware(app, ApiKeys.from_setting(f"me:{KEY}", None), PATHS)
    with pytest.raises(Unauthorized):
        await ask(step)
    await ask(step, headers=[(b"x-api-key", KEY.encode())])
    assert app.callers == ["me"]


async def test_page_needs_no_key():
    app = CallerReader()
    step = ApiKeyMiddleware(app, ApiKeys.from_setting(f"me:{KEY}", None), PATHS)
    await ask(step, "/page", "GET")
    assert app.callers == [""]


async def test_nobody_needs_a_key_without_keys():
    app = CallerReader()
    await ask(ApiKeyMiddleware(app, None, PATHS), headers=[(b"x-api-key", b"any")])
    assert app.callers == [""]


async def test_caller_above_its_rate_is_refused():
    app = Application()
    step = RateLimitMiddleware(app, RateLimit("1/minute", None, rates_of=lambda _: None))
    await ask(step)
    with pytest.raises(TooManyRequests):
        await ask(step)
    assert len(app.requests) == 1


async def test_without_limits_every_request_passes():
    app = Application()
    for _ in range(3):
        await ask(RateLimitMiddleware(app, None))
    assert len(app.requests) == 3
