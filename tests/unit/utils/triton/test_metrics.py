"""Triton's part of `/metrics`."""

import asyncio

import pytest

from harness import free_ports
from utils.triton import metrics
from utils.triton.metrics import triton_metrics

SERIES = b'# TYPE nv_inference_count counter\nnv_inference_count{model="mobile_sam"} 3\n'


@pytest.mark.parametrize(
    ("status", "end"),
    [
        pytest.param(200, b"\nmobile_sam_triton_metrics_up 1\n" + SERIES, id="answers"),
        pytest.param(500, b"\nmobile_sam_triton_metrics_up 0\n", id="error"),
        pytest.param(None, b"\nmobile_sam_triton_metrics_up 0\n", id="hangs"),
    ],
)
async def test_tritons_series_follow_the_up_metric_which_is_0_without_them(
    monkeypatch, status, end
):
    answered = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /metrics HTTP/1.1\r\n")
        if status:
            writer.write(
                b"HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n" % (status, len(SERIES)) + SERIES
            )
        else:
            await reader.read()
        writer.close()
        await writer.wait_closed()
        answered.set()

    if not status:
        monkeypatch.setattr(metrics, "TRITON_TIMEOUT_S", 0.05)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        text = await triton_metrics(server.sockets[0].getsockname()[1])
        await answered.wait()
    assert text.endswith(end)


async def test_up_metric_is_0_without_triton():
    assert (await triton_metrics(free_ports(1)[0])).endswith(b"\nmobile_sam_triton_metrics_up 0\n")
