"""A GPU that is this machine's CPU: PyTorch's names of CUDA over host tensors, so that code for GPUs runs anywhere.

It says nothing of times. Its clock is the host's, which spins add to without waiting.
"""

import contextlib
import time
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode

from nearpeak.measurement.machine.cuda_device import EventTimer

NAME = "NVIDIA H200"
CYCLE_S = 0.5e-9


def _on_host(value):
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


class _OnHost(TorchFunctionMode):
    """Puts what is asked for on the GPU on the host; what goes there or comes back is a copy, as on a real one."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        given = {name: _on_host(value) for name, value in (kwargs or {}).items()}
        if function is torch.Tensor.cpu:
            return args[0].clone()
        if function is torch.Tensor.to and "cuda" in map(str, args):
            given["copy"] = True
        return function(*map(_on_host, args), **given)


class _Clock:
    spun_s = 0.0

    def now_s(self):
        return time.perf_counter() + self.spun_s

    def sleep(self, cycles):
        self.spun_s += cycles * CYCLE_S


class _Event:
    clock = _Clock()

    def __init__(self, enable_timing=False):
        assert enable_timing, "an event that is read must be made for it"
        self.at_s = None

    def record(self, stream=None):
        self.at_s = self.clock.now_s()

    def synchronize(self):
        assert self.at_s is not None, "an event is waited for before it is recorded"

    def elapsed_time(self, other):
        return (other.at_s - self.at_s) * 1e3


class _Stream:
    def wait_stream(self, other):
        assert isinstance(other, _Stream)


class _Graph:
    """Gives again what was computed while it was captured."""

    def replay(self):
        """Do nothing: results lie where they were."""


@contextlib.contextmanager
def _capture(graph, pool=None, stream=None):
    assert isinstance(graph, _Graph)
    assert isinstance(stream, _Stream), "a gradient must be captured on the stream of its forward pass"
    yield


class _Profile(contextlib.nullcontext):
    """A profiler that saw one kernel of a nanosecond in each call, and a mark of the user's over all of them."""

    def __init__(self, activities):
        assert activities == [torch.profiler.ProfilerActivity.CUDA]
        super().__init__(self)

    def events(self):
        spans = [(10.0 * call, 10.0 * call + 1e-3, "a_kernel", False) for call in range(3)]
        return [
            SimpleNamespace(
                time_range=SimpleNamespace(start=start, end=end), name=name, is_user_annotation=marked,
                device_type=torch.autograd.DeviceType.CUDA,
            )
            for start, end, name, marked in [*spans, (0.0, 1e9, "## a mark ##", True)]
        ]  # fmt: skip


def pretend(patch):
    """Let PyTorch say that there is an H200, until the monkeypatch is undone; return what ends the redirection."""
    facts = {
        "is_available": lambda: True, "get_device_name": lambda _=0: NAME, "synchronize": lambda _=None: None,
        "get_device_properties": lambda _=0: SimpleNamespace(name=NAME, L2_cache_size=1 << 20, uuid="0123-4567"),
        "mem_get_info": lambda _=None: (1 << 32, 1 << 32), "Event": _Event, "_sleep": _Event.clock.sleep,
        "Stream": _Stream, "current_stream": lambda _=None: _Stream(), "stream": lambda _: contextlib.nullcontext(),
        "CUDAGraph": _Graph, "graph": _capture,
    }  # fmt: skip
    for name, value in facts.items():
        patch.setattr(torch.cuda, name, value)
    patch.setattr(EventTimer, "resolution_s", 1e-9)  # events take the host's time, whose calls may be that short
    patch.setattr(torch.version, "cuda", "13.0")
    patch.setattr(torch.profiler, "profile", _Profile)
    mode = _OnHost()
    mode.__enter__()
    return mode
