"""`nearpeak show` for people: whole names, everything explained, 80 columns."""

import sys

import pytest

from nearpeak.cli import main
from nearpeak.cli.shared import options
from nearpeak.errors import UnknownNameError
from nearpeak.frontends.huggingface.published_models import MODELS
from nearpeak.ops import OPS
from nearpeak.targets import TARGETS
from nearpeak.targets.clusters import fabric_names


@pytest.fixture
def shown(capsys, monkeypatch):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["nearpeak", *words])
        monkeypatch.setattr(options, "on_terminal", lambda: True)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("NO_COLOR", "1")
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("kind", "names"),
    [("targets", TARGETS.names()), ("ops", OPS.names()), ("fabrics", fabric_names()), ("models", tuple(MODELS))],
)
def test_names_in_a_list_are_whole_so_that_they_can_be_copied(shown, kind, names):
    assert set(shown("show", kind).split()) >= set(names) - {"cpu"}


def test_an_operator_shows_also_the_axes_whose_default_follows_from_others(shown):
    text = shown("show", "ops", "attention")
    assert "[kv_heads=…]" in text
    assert "    left: keys up to its own position that a query sees" in text


@pytest.mark.parametrize(
    "words",
    [
        ("show", "ops"),
        ("show", "ops", "--all"),
        ("show", "targets", "--all"),
        ("show", "models"),
        ("show", "models", "--all"),
        ("show", "ops", "gemm"),
        ("show", "targets"),
        ("show", "targets", "h100_sxm"),
        ("show", "fabrics"),
        ("show", "fabrics", "hgx_h100"),
        ("show", "fabrics", "ib_hdr"),
        ("show", "runners"),
    ],
)
def test_what_is_shown_fits_80_columns(shown, words):
    assert max(map(len, shown(*words).splitlines())) <= 80


@pytest.mark.parametrize("kind", ["ops", "targets", "models"])
def test_a_list_fits_a_tall_terminal_and_all_of_it_is_an_option_away(shown, kind):
    assert len(shown("show", kind).splitlines()) <= 60 < len(shown("show", kind, "--all").splitlines())


def test_no_word_of_the_table_of_runners_is_broken(shown):
    names = {word.strip(",") for line in shown("show", "runners").splitlines() for word in line.split()}
    assert names >= {"onnxruntime", "torch_tensorrt", "callable_cuda:module:function", "torch", "onnx"}


@pytest.mark.parametrize(
    ("name", "meant"), [("sort", "topk"), ("cholesky", "linalg"), ("eigh", "decomposition"), ("MatMul", "gemm")]
)
def test_an_operator_is_found_by_what_frameworks_call_it(name, meant):
    with pytest.raises(UnknownNameError, match=f"did you mean {meant}"):
        OPS[name]


def test_numbers_that_a_reference_takes_as_given_are_shown(shown):
    assert "Constants: EPSILON = 1e-06" in shown("show", "ops", "rms_norm")
    assert "BETA_2 = 0.999" in shown("show", "ops", "adamw")
    assert "Constants" not in shown("show", "ops", "gemm")


def test_the_bound_of_a_case_fits_80_columns(shown):
    text = shown("bound", "collective", "elements=1024", "dtype=bf16", "--target", "h100_sxm")
    assert max(map(len, text.splitlines())) <= 80


def test_power_modes_stay_readable_beside_each_other(shown, tmp_path):
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp16"}', encoding="utf-8")
    text = shown("analyze", str(cases), "--text", "-t", "jetson_agx_orin:30W", "-t", "jetson_agx_orin:50W")
    assert {"jetson_agx_orin:30W", "jetson_agx_orin:50W"} <= {line.split()[0] for line in text.splitlines() if line}
    assert max(map(len, text.splitlines())) <= 80
