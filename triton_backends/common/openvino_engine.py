"""A graph that OpenVINO runs on the CPU: in the backend `openvino`, or in the process that asks for
its answers.

These `parameters` of a model are OpenVINO's properties: `PERFORMANCE_HINT` (`LATENCY`, the default,
or `THROUGHPUT`), `INFERENCE_NUM_THREADS`, `COMPILATION_NUM_THREADS`, `NUM_STREAMS`, `HINT_BF16`
(`YES`: matrix products and convolutions in bfloat16; otherwise in float32, even if the processor
supports both).
"""

import ctypes
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock, Thread, get_native_id
from typing import Any

# oneDNN's own cache of compiled primitives, which would keep those that OpenVINO's drops. Read as
# the library loads.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0")
# With this package, OpenVINO sends usage data to Google Analytics whenever it is imported.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import numpy as np
import numpy.typing as npt
import openvino as ov

Array = npt.NDArray[Any]
Signature = dict[str, tuple[str, list[int]]]
logger = logging.getLogger("openvino")

DEVICE = "CPU"
CACHED_PRIMITIVES = 96
"""Compiled primitives that OpenVINO keeps, about ten for each combination of numbers of prompts
and points. With its default of 5,000, MobileSAM's decoder grows by 0.7 GB in 100 requests of
different shapes; with 96, by 0.09 GB."""
PASSED_THROUGH = ("INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS", "NUM_STREAMS")
LARGE_RUN_FACTOR, MEMORY_KEPT_S = 8, 30.0
"""Memory is released after this time without large runs, or without runs of other shapes than
the first. A run is large if one of its inputs is this many times as large as the smallest seen."""
PAUSE_S = 0.025
"""Time without a run after which the processor's cores are taken to sleep."""


class Engine:
    """A compiled graph: ONNX or OpenVINO's own format."""

    def __init__(self, path: Path, parameters: Mapping[str, str], *, batched: bool = False) -> None:
        """Compile the graph.

        Args:
            path: file of the graph.
            parameters: properties, see above; others are ignored.
            batched: whether the first size of all inputs and outputs is that of a batch.

        Raises:
            ValueError: the parameters ask for bfloat16, which this processor lacks.
        """
        core = ov.Core()
        model = core.read_model(path)
        # Compiled ones have more names.
        self.inputs, self.outputs = (
            signature(model.inputs),
            signature(model.outputs),
        )
        self.one_by_one = batched and fix_batch(model)
        options = properties(parameters, core)
        self.compile: Callable[[], ov.CompiledModel] = lambda: core.compile_model(
            model, DEVICE, options
        )
        self.request = self.compile().create_infer_request()
        self.first_feed: dict[str, Array] = {}
        self.smallest: dict[str, int] = {}
        self.last_large = self.last_other = math.inf
        self.last_run = -math.inf
        self._lock = Lock()
        Thread(target=self._watch, daemon=True).start()

    def run(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        """Return the named outputs; if the batch size is fixed, the items of a batch run one by
        one.
        """
        items = len(next(iter(feed.values())))
        if not self.one_by_one or items == 1:
            return self._infer(feed, names)
        feeds = [
            {name: array[item : item + 1] for name, array in feed.items()} for item in range(items)
        ]
        parts = [self._infer(item, names) for item in feeds]
        return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]

    def _infer(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        with self._lock:
            with threads_spread() if time.monotonic() - self.last_run > PAUSE_S else nullcontext():
                answer = self.request.infer(feed, share_inputs=True, share_outputs=True)
            self.last_run = time.monotonic()
            self._note_run(feed)
            # The next run overwrites the request's memory.
            return [np.array(answer[name]) for name in names]

    def _note_run(self, feed: dict[str, Array]) -> None:
        """Remember that a run of other shapes than the first, or a large one, has ended."""
        self.first_feed = self.first_feed or {
            name: np.zeros_like(array) for name, array in feed.items()
        }
        self.smallest = {
            name: min(array.size, self.smallest.get(name, array.size))
            for name, array in feed.items()
        }
        # The first shapes come from the warm-up; the watchdog's probes use them too.
        if any(array.shape != self.first_feed[name].shape for name, array in feed.items()):
            self.last_other = time.monotonic()
        if any(
            array.size >= LARGE_RUN_FACTOR * self.smallest[name] for name, array in feed.items()
        ):
            self.last_large = time.monotonic()

    def _watch(self) -> None:
        while True:
            time.sleep(MEMORY_KEPT_S / 3)
            now = time.monotonic()
            if now - min(self.last_other, self.last_large) > MEMORY_KEPT_S:
                try:
                    self._renew()
                except Exception as error:  # the model in use stays
                    logger.warning("OpenVINO's memory is not released: %r", error)

    def _renew(self) -> None:
        """Replace the compiled model by a new one, which OpenVINO offers no other way to free of
        cached primitives.

        It also keeps the memory of its largest run, which for MobileSAM's decoder with 500 points
        exceeds the model's. A new one takes 0.2 s, while requests use the old one.
        """
        request = self.compile().create_infer_request()
        request.infer(self.first_feed)  # spares the next request most of the preparation
        with self._lock:
            self.request = request
            self.last_other = self.last_large = math.inf
        libc("malloc_trim", 0)


@contextmanager
def threads_spread() -> Iterator[None]:
    """Keep this process's other threads off the core of the calling one.

    A virtual core that sleeps counts as preempted (`vcpu_is_preempted` in Linux's
    `available_idle_cpu`), so after a pause the kernel may wake all threads of a run on one core,
    and shares them out 4 ms later. Not for runs in quick succession: pinned threads wait for their
    core while another one is free, which costs 11 % of the answers.
    """
    cores = os.sched_getaffinity(0)
    _set_cores_of_others(cores - {libc("sched_getcpu")} or cores)
    try:
        yield
    finally:
        _set_cores_of_others(cores)


def _set_cores_of_others(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != get_native_id():
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread.name), cores)


def libc(function: str, *values: int) -> int | None:
    """Call a function that only glibc has and return its result; elsewhere do nothing."""
    call = getattr(ctypes.CDLL(None), function, None)
    return call(*values) if call else None


def fix_batch(model: ov.Model) -> bool:
    """Set the batch size to 1 if it is the only variable size, and return whether it is.

    With all shapes known OpenVINO avoids reordering memory: MobileSAM's encoder takes 0.87 of the
    time per image, and a run of two images is not faster than two runs.
    """
    shapes = {port.get_any_name(): port.get_partial_shape() for port in model.inputs}
    for shape in shapes.values():
        if any(axis.is_dynamic for axis in list(shape)[1:]):
            return False
    model.reshape({name: [1, *list(shape)[1:]] for name, shape in shapes.items()})
    return True


def properties(parameters: Mapping[str, str], core: ov.Core) -> dict[str, str]:
    """Return OpenVINO's properties; raises as `Engine`."""
    bf16 = parameters.get("HINT_BF16") == "YES"
    if bf16 and "BF16" not in core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES"):
        raise ValueError("config asks for HINT_BF16, this processor has no bfloat16")
    return {
        "PERFORMANCE_HINT": parameters.get("PERFORMANCE_HINT", "LATENCY"),
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        "CPU_RUNTIME_CACHE_CAPACITY": str(CACHED_PRIMITIVES),
        # Several processes share the cores: a pinned thread would wait for its core while another
        # one is free.
        "ENABLE_CPU_PINNING": "NO",
        **{key: parameters[key] for key in PASSED_THROUGH if key in parameters},
    }


def read_signatures(path: Path) -> tuple[Signature, Signature]:
    """Return the inputs and outputs of a file without compiling it."""
    model = ov.Core().read_model(path)
    return signature(model.inputs), signature(model.outputs)


def signature(ports: list[Any]) -> Signature:
    """Return OpenVINO's type and the shape, -1 for a variable size, of a model's inputs or
    outputs, by name.
    """
    return {
        port.get_any_name(): (
            port.get_element_type().get_type_name(),
            [-1 if size.is_dynamic else size.get_length() for size in port.get_partial_shape()],
        )
        for port in ports
    }
