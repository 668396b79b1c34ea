"""One command shows a failure again, whichever check found it."""

import json
import shlex
import subprocess
import sys

import pytest
from tests.sampling import sampled

from nearpeak.cli import main

pytest.importorskip("torch")
KERNELS = """
import torch
from nearpeak.validation import Implementation
from nearpeak.ops import OPS
CALLS = []

def right(tensors, **arguments):
    return OPS["softmax"].torch_call(tensors, **arguments)

def degenerate(tensors, **arguments):
    return right(tensors, **arguments)

def v1(tensors, **arguments):
    return {"y": right(tensors, **arguments)["y"].double()}

def v2(tensors, **arguments):
    found = right(tensors, **arguments)
    tensors["x"].view(-1)[0] += 1
    return found

def v3(tensors, **arguments):
    y = torch.empty_like(tensors["x"])
    y[:-1] = right(tensors, **arguments)["y"][:-1]
    return {"y": y}

def v4(tensors, **arguments):
    return {"y": right(tensors, **arguments)["y"].nan_to_num()}

def v5(tensors, **arguments):
    y = right(tensors, **arguments)["y"].clone()
    y[1, 2] *= 1.5
    return {"y": y}

def v6(tensors, **_):
    e = (tensors["x"].float() - tensors["x"].float().amax(-1, keepdim=True)).exp()
    y = e / e.sum(-1, keepdim=True)
    return {"y": (y * (1 + 0.012 * torch.sign(torch.sin(1e6 * y)))).bfloat16()}

def v7(tensors, **arguments):
    y = right(tensors, **arguments)["y"]
    return {"y": y * 1.01 if bool((tensors["x"] > 0).all()) else y}

def v8(tensors, **arguments):
    CALLS.append(1)
    return {"y": right(tensors, **arguments)["y"] * (1 + 0.01 * (len(CALLS) in OFTEN))}

OFTEN = range(9, 1000)

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return torch.softmax(x, -1)
    @staticmethod
    def backward(context, grad):
        return grad

def v9(tensors, **_):
    return {"y": Wrong.apply(tensors["x"])}

def v10(tensors, **arguments):
    x = tensors["x"]
    y = right(tensors, **arguments)["y"].clone()
    y[0] *= 1 + 0.01 * (x[0, 0] < x[-1, 0])
    return {"y": y}

KEPT = {}
def v11(tensors, **arguments):
    key = tensors["x"].data_ptr()
    return KEPT.setdefault(key, [tensors["x"].clone(), right(tensors, **arguments)])[1]

v12 = Implementation(name="v12", call=right, ledger=({"node": "a", "target": "b", "reason": "c"},))
"""


@pytest.fixture
def _kernels(tmp_path, monkeypatch):
    (tmp_path / "kernels_of_reproduction.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["nearpeak", *words])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code, capsys.readouterr().out


def words_of(check):
    columns, name = {"v0": ("1", "degenerate"), "v6": ("256", "v6")}.get(check, ("40", check))
    rows, dtype = ("64", "bf16") if check == "v6" else ("8", "fp32")
    case = ["softmax", f"rows={rows}", f"columns={columns}", f"dtype={dtype}"]
    return [*case, "--implementation", f"kernels_of_reproduction:{name}", "--seed", "5"]


@pytest.mark.slow
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("check", ["v8", "v11"])
def test_what_depends_on_earlier_calls_shows_again_in_a_new_process(check):
    def ran(words):
        done = subprocess.run([sys.executable, "-m", "nearpeak", *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    words = ["validate", *words_of(check)]
    for _ in range(2):
        code, out = ran(words)
        record = json.loads(out)
        assert code == 12
        assert check.upper() in [one["check"] for one in record["checks"] if one["status"] not in ("PASS", "SKIPPED")]
        words = shlex.split(record["command"])[1:]


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("check", sampled(["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v9", "v10", "v12"], 6))
def test_the_command_of_a_record_shows_its_failure_again(check, monkeypatch, capsys):
    code, out = run(monkeypatch, capsys, "validate", *words_of(check))
    record = json.loads(out)
    failed = [one["check"] for one in record["checks"] if one["status"] not in ("PASS", "SKIPPED")]
    assert code == (0 if check == "v0" else 12)  # a case that cannot tell a wrong result is no failure
    assert check.upper() in failed, failed
    assert run(monkeypatch, capsys, *shlex.split(record["command"])[1:]) == (code, out)


@pytest.mark.parametrize("runner", ["torch_cpu", "callable:kernels_of_reproduction:v5"])
@pytest.mark.usefixtures("_kernels")
def test_a_runner_s_record_says_the_runner(runner, monkeypatch, capsys):
    code, out = run(
        monkeypatch, capsys, "validate", "softmax", "rows=8", "columns=40", "dtype=fp32", "--runner", runner
    )
    record = json.loads(out)
    assert f"--runner {runner}" in record["command"]
    assert run(monkeypatch, capsys, *shlex.split(record["command"])[1:]) == (code, out)
    assert (code == 12) == runner.endswith("v5")
