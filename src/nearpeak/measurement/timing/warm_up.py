"""Warm-up of the fork server: imports and buffers that every forked child inherits."""

import sys
import tempfile

import numpy as np

from nearpeak.base.host_system import versions
from nearpeak.core.runs.measurement import Timing
from nearpeak.measurement.machine.environment import cpu_environment
from nearpeak.measurement.runners import RUNNERS
from nearpeak.measurement.timing.clocks import clock_probe_s, cpu_throttle_count, sweep_buffer
from nearpeak.measurement.validation_gate import installed_validate
from nearpeak.ops import OPS


def warm_up() -> None:
    """Import runners and operators, fill the buffer that empties caches; PyTorch keeps to one thread.

    A thread pool would not survive the fork: the child starts its own if the case uses several threads.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    for name in RUNNERS:
        RUNNERS[name]
    for name in OPS:
        OPS[name]
    installed_validate()
    sweep_buffer(Timing().flush_bytes)
    np.random.default_rng((0, 0)).standard_normal(1)
    tempfile.gettempdir()
    clock_probe_s()
    cpu_throttle_count()
    versions("torch", "numpy", "onnxruntime", "onnx", "triton")
    cpu_environment()
