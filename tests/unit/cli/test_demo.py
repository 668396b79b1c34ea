"""The demo of `make demo`, on one small step and one case: every part of it runs to its end."""

import importlib.util
import inspect
import json

import pytest
from house_rules import ROOT
from rich.console import Console

import nearpeak
from nearpeak.core.answers.analysis import Analysis
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.published_models import MODELS

pytest.importorskip("torch")


@pytest.fixture
def demo(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, path in (("OUT", "demo"), ("STORE", "demo/history.db"), ("SITE", "demo/dashboard")):
        monkeypatch.setattr(module, name, tmp_path / path)
    return module


def test_the_demo_runs_to_its_end_and_leaves_what_it_names(demo, monkeypatch, tmp_path, capsys):
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(nearpeak.case("gemm", m=64, n=64, k=64, dtype="bf16").record()))
    monkeypatch.setattr(demo, "WORKLOADS", (("small", str(cases), {}),))
    monkeypatch.setattr(demo, "TARGETS", ("h200_sxm", "mi300x", "cpu"))
    monkeypatch.setattr(demo, "_cpu", lambda _: nearpeak.target("l40s"))
    monkeypatch.setattr(demo, "MEASURED", (nearpeak.case("gemm", m=32, n=32, k=32, dtype="fp32"),))
    demo.main()
    text = capsys.readouterr().out
    assert "small: covers 1 of 1 calls" in text
    assert "1 reports in" in text
    assert "Measured 1 cases on this CPU" in text
    for name in ("small.html", "small.json", "history.db", "dashboard/index.html"):
        assert (demo.OUT / name).exists(), name


def test_what_the_demo_captures_measures_and_calls_exists(demo):
    pytest.importorskip("onnx")
    assert demo._onnx_file().is_file()
    assert {model for _, model, _ in demo.WORKLOADS} - {"onnx"} <= set(MODELS.names())
    options = {name for _, _, stated in demo.WORKLOADS for name in stated}
    assert options <= set(inspect.signature(nearpeak.capture).parameters)
    assert {"targets", "covered_count", "call_count", "complete"} <= {*Analysis.__dataclass_fields__, "complete"}
    for name in demo.TARGETS:
        assert name == "cpu" or nearpeak.target(name).name == name


def test_the_demo_measures_roofs_once_where_none_are_known(demo, monkeypatch, capsys):
    from nearpeak.cli.run import calibrate

    known, calls = [], []

    def target(name):
        if not known:
            raise SpecError("its roofs are not measured yet")
        return name

    def roofs(**options):
        inspect.signature(signature_of_roofs).bind(**options)
        calls.append(options)
        known.append("cpu")

    signature_of_roofs = calibrate.roofs
    monkeypatch.setattr(calibrate, "roofs", roofs)
    monkeypatch.setattr(demo.nearpeak, "target", target)
    assert demo._cpu(Console()) == "cpu"
    assert calls == [{"probes": False, "busy": True}]
    assert "measured in" in capsys.readouterr().out
