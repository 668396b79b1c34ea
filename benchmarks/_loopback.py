"""A small model server on loopback with a dynamic batcher, and an open-loop client that knows when it meant to send."""

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._figures import ROOT

WIDTH, LAYERS = 1024, 6
"""Extents of the served network: products of some milliseconds on one core."""
REQUEST, REPLY = struct.Struct("<i"), struct.Struct("<iiddd")
"""A request's number; with it in a reply the size of its batch, how long that ran, when it ended, and when the
request came in."""
STALL = -1
"""Request that stops the server for a while before its next batch."""


class Batcher:
    """Requests of one connection, put into batches as a dynamic batcher does."""

    def __init__(self, most: int, delay_s: float, stall_s: float) -> None:
        self.most, self.delay_s, self.stall_s = most, delay_s, stall_s
        self.waiting: deque[tuple[int, float]] = deque()
        self.changed = threading.Condition()
        self.stalls, self.is_open = 0, True

    def add(self, number: int) -> None:
        """Put a request behind the others."""
        with self.changed:
            if number == STALL:
                self.stalls += 1
            else:
                self.waiting.append((number, time.perf_counter()))
            self.changed.notify()

    def next_batch(self) -> list[tuple[int, float]]:
        """Return the next batch: full, or of all who wait when the oldest has waited for the delay."""
        with self.changed:
            while self.is_open and not self.waiting:
                self.changed.wait()
            while self.is_open and len(self.waiting) < self.most:
                left = self.waiting[0][1] + self.delay_s - time.perf_counter()
                if left <= 0:
                    break
                self.changed.wait(left)
            stalls, self.stalls = self.stalls, 0
        time.sleep(stalls * self.stall_s)  # requests keep coming in meanwhile
        with self.changed:
            return [self.waiting.popleft() for _ in range(min(self.most, len(self.waiting)))]


def network() -> Any:
    """Return the function that serves a batch, on one thread."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    net = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
    rows = torch.randn(256, WIDTH)

    def run(count: int) -> None:
        with torch.inference_mode():
            net(rows[:count])

    return run


def serve(words: list[str]) -> None:
    """Serve one connection until it closes."""
    most, delay_s, stall_s = int(words[0]), float(words[1]), float(words[2])
    run = network()
    for size in range(1, most + 1):
        run(size)
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    batcher = Batcher(most, delay_s, stall_s)

    def read() -> None:
        file = connection.makefile("rb")
        while len(data := file.read(REQUEST.size)) == REQUEST.size:
            batcher.add(REQUEST.unpack(data)[0])
        with batcher.changed:
            batcher.is_open = False
            batcher.changed.notify()

    threading.Thread(target=read, daemon=True).start()
    while batch := batcher.next_batch():
        begun_s = time.perf_counter()
        run(len(batch))
        ended_s = time.perf_counter()
        connection.sendall(
            b"".join(REPLY.pack(number, len(batch), ended_s - begun_s, ended_s, came_s) for number, came_s in batch)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an open-loop run saw."""

    arrival_s: np.ndarray
    """When each request was meant to be sent."""
    latency_s: np.ndarray
    """From then to its reply."""
    batch_count: np.ndarray
    """Size of its batch."""
    batch_s: np.ndarray
    """How long that ran."""
    received_s: np.ndarray
    """When the server had it, on the client's clock, which is the machine's."""
    reply_s: np.ndarray
    """From the end of the batch to the client."""
    late_s: float
    """Most that the client itself sent late."""


def offered(arrivals_s: np.ndarray, most: int, delay_s: float, *, stall_at: int = -1, stall_s: float = 0.0) -> Measured:
    """Return what requests at given times see of a server of its own; it ends with the run."""
    line = [sys.executable, "-m", "benchmarks._loopback", str(most), str(delay_s), str(stall_s)]
    server = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _exchange(connection, arrivals_s, stall_at)
    finally:
        server.terminate()
        server.wait()


def _exchange(connection: socket.socket, arrivals_s: np.ndarray, stall_at: int) -> Measured:
    count, late_s = len(arrivals_s), 0.0
    sizes, (ends, spent, came, replies) = np.zeros(count, np.int64), np.zeros((4, count))
    start_s = time.perf_counter() + 0.05

    def read() -> None:
        file = connection.makefile("rb")
        for _ in range(count):
            number, size, batch_s, ended_s, came_s = REPLY.unpack(file.read(REPLY.size))
            ends[number], sizes[number], spent[number] = time.perf_counter() - start_s, size, batch_s
            came[number], replies[number] = came_s - start_s, time.perf_counter() - ended_s

    reader = threading.Thread(target=read)
    reader.start()
    for number, moment in enumerate(arrivals_s.tolist()):
        left = start_s + moment - time.perf_counter()
        if left > 0:
            time.sleep(left)
        late_s = max(late_s, -left)
        if number == stall_at:
            connection.sendall(REQUEST.pack(STALL))
        connection.sendall(REQUEST.pack(number))
    reader.join()
    return Measured(arrival_s=arrivals_s, latency_s=ends - arrivals_s, batch_count=sizes, batch_s=spent,
                    received_s=came, reply_s=replies, late_s=late_s)  # fmt: skip


if __name__ == "__main__":
    serve(sys.argv[1:])
