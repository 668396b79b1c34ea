"""Implementations under test: right ones, and some that a runner must survive."""

import ctypes
import os
import signal
import time

import numpy as np


def softmax(arrays, **_):
    shifted = np.exp(arrays["x"] - arrays["x"].max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def twice(arrays, **_):
    softmax(arrays)
    return softmax(arrays)


def segfault(arrays, **_):
    ctypes.string_at(0)


def hang(arrays, **_):
    while True:
        pass


def exhaust(arrays, **_):
    kept = []
    while True:
        kept.append(np.ones(1 << 22))


def exhaust_slowly(arrays, **_):
    time.sleep(1.0)
    raise RuntimeError(
        "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"
    )


def speak_and_leave(arrays, **_):
    print("one error:\nin two lines", flush=True)
    os._exit(3)


def take_and_hang(arrays, **_):
    kept = np.empty(3 << 27, np.uint8)
    while len(kept):
        pass


def leave(arrays, **_):
    os._exit(3)


def kill(arrays, **_):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(arrays, **_):
    raise ValueError("no such kernel\nsecond line")


def fail_with_outcome(arrays, **_):
    error = ValueError("its own field")
    error.outcome = "converged"
    raise error


class SpeechlessError(Exception):
    def __str__(self):
        raise KeyError("nothing to say")


def fail_without_words(arrays, **_):
    raise SpeechlessError


def stop_clocks(arrays, **_):
    for name in ("perf_counter_ns", "thread_time_ns", "process_time_ns", "monotonic", "process_time"):
        setattr(time, name, lambda: 0)
    return softmax(arrays)


for one in (
    softmax, twice, segfault, hang, exhaust, leave, fail, fail_with_outcome, fail_without_words, stop_clocks,
):  # fmt: skip
    one.arrays = "numpy"
