"""A program that answers the external-process protocol; its argument makes it break it."""

import json
import os
import signal
import sys
import time

import numpy as np

MODE = " ".join(sys.argv[1:])


def computed(case, tensors):
    if case["op"] == "gemm":
        return tensors["a"].astype(float) @ tensors["b"]
    shifted = np.exp(tensors["x"].astype(float) - tensors["x"].max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


PREPARED = {
    "version": {"protocol": 7}, "ledger": {"ledger": [{"where": "x"}]}, "silent": {"unsupported": None},
    "flop": {"ledger": [{"node": "x", "ran_on": "y", "reason": "z", "flop": "many"}]},
    "ratio": {"ledger": [{"node": "x", "ran_on": "y", "reason": "z", "time_ratio": 7}]},
    "node": {"ledger": [{"node": 3, "ran_on": "y", "reason": "z"}]},
    "rows": {"ledger": {"node": "x"}},
}  # fmt: skip
TIMES = {
    "zero": {"time_s": 0}, "tiny": {"time_s": 1e-12},
    "timeless": {"time_s": None}, "nan time": {"time_s": float("nan")}, "negative": {"time_s": -1},
    "true": {"time_s": True}, "cpu": {"cpu_s": "x"},
}  # fmt: skip
WRITTEN = {
    "dtype": {"dtype": "float32"}, "shape": {"shape": "big"}, "transposed": {"shape": [5, 8, 2]},
    "file": {"file": "/dev/zero"}, "relative": {"file": "y.out"}, "absent": {"file": "z.out"},
}  # fmt: skip


def answer(request, state):
    if request["do"] == "prepare":
        if request["case"]["op"] not in ("gemm", "softmax"):
            return {"unsupported": "only gemm and softmax"}
        said = request["inputs"].items()
        state["tensors"] = {name: np.fromfile(one["file"], "<f4").reshape(one["shape"]) for name, one in said}
        state["case"] = request["case"]
        return {"algorithm": "numpy", "changes": True} | PREPARED.get(MODE, {})
    if request["do"] == "change":
        flat = state["tensors"][request["input"]].reshape(-1)
        flat[request["at"]] = np.fromfile(request["file"], "<f4", 1, offset=4 * request["at"])[0]
    if request["do"] == "run" and MODE == "later":
        return {"error": "out of luck"}
    if request["do"] == "run":
        start, cpu = time.perf_counter(), time.thread_time()
        for _ in range(request["call_count"]):
            if MODE != "kept" or "y" not in state:
                state["y"] = computed(state["case"], state["tensors"])
        return {"cpu_s": time.thread_time() - cpu, "time_s": time.perf_counter() - start} | TIMES.get(MODE, {})
    if request["do"] == "outputs":
        file = f"{request['folder']}/y.out"
        state["y"].astype("<f4").tofile(file)
        said = {"file": file, "dtype": "fp32", "shape": list(state["y"].shape)} | WRITTEN.get(MODE, {})
        return {} if MODE == "nothing" else {"outputs": {"y": said}}
    return {}


def broken():
    if MODE == "leave":
        sys.exit(7)
    if MODE == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if MODE == "long":
        sys.stdout.write("x" * (3 << 20))
    return {"error": '{"error": "out of luck"}', "words": "hello", "list": "[1]"}.get(MODE)


def main():
    state = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "close":
            return
        print(broken() or json.dumps(answer(request, state)), flush=True)


if __name__ == "__main__":
    main()
