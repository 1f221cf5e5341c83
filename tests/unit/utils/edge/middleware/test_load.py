"""Work for which there is no room, or no Triton."""

import pytest

from tests.unit.utils.edge.middleware.calls import Application, ask
from utils.edge.admission import Admission
from utils.edge.middleware.load import AdmissionMiddleware, HealthMiddleware
from utils.errors import InferenceUnavailable, Overloaded, Stopping
from utils.inference.shares import RecentCallers
from utils.triton.health import Health


async def test_work_is_refused_once_there_is_no_room():
    app, admission = Application(), Admission(1, 1)
    step = AdmissionMiddleware(app, admission, RecentCallers())
    with admission.slot("10.0.0.1"), pytest.raises(Overloaded):
        await ask(step)
    assert not app.requests
    await ask(step)
    assert app.requests


async def test_work_is_refused_once_the_worker_stops():
    admission = Admission(1, 1)
    admission.stop(10)
    with pytest.raises(Stopping):
        await ask(AdmissionMiddleware(Application(), admission, RecentCallers()))


async def test_refused_caller_counts_as_active():
    active, admission = RecentCallers(), Admission(1, 1)
    admission.stop(10)
    with pytest.raises(Stopping):
        await ask(AdmissionMiddleware(Application(), admission, active))
    assert active.has_others("10.0.0.2")


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("ready", None),
        ("failing", None),
        ("starting", InferenceUnavailable),
        ("restarting", InferenceUnavailable),
        ("stopping", Stopping),
        ("stopped", Stopping),
    ],
)
async def test_work_needs_a_triton_that_may_answer(state, error):
    app = Application()
    step = HealthMiddleware(app, lambda: Health(state))
    if error is None:
        await ask(step)
        assert app.requests
        return
    with pytest.raises(error):
        await ask(step)
    assert not app.requests
