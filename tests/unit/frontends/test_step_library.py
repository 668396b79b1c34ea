"""The library of steps: equal to captures of today, current, small, and read without PyTorch."""

from dataclasses import replace
from random import Random

import pytest
from benchmarks.step_library import Piece, difference, size_within
from tests.sampling import sampled

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import MissingExtraError, SpecError
from nearpeak.frontends import source_types
from nearpeak.frontends.files.step_template import folded, instantiated, unfolded
from nearpeak.frontends.huggingface.published_models import MODELS
from nearpeak.frontends.huggingface.step_library import FOLDER, contents_of, dimensions_digest
from nearpeak.frontends.source_types import captured

NAMES = sorted(file.stem for file in FOLDER.glob("*.xz"))
LLAMA = CaptureOptions(step="decode", batch=3, kv=777)


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(source_types, "find_spec", lambda name: None)
    monkeypatch.setattr(source_types, "capture_isolated", lambda *_, **__: pytest.fail("a process was started"))


def needs_the_packages_that_captured(name):
    for package, version in contents_of(name)[0].versions.items():
        if pytest.importorskip(package).__version__ != version:
            pytest.skip(f"the library was captured with {package} {version}")


def test_numbers_of_equal_layers_become_equal_lines_and_come_back():
    text = "\n".join(f'{{"module":"layers.{n}","reads":[[{7 * n},1e-05,-{n % 3}]]}}' for n in range(5))
    lines = folded(text).split("\n")
    assert len(set(lines[1:])) < len(lines) - 1
    assert unfolded(folded(text)) == text


def test_polynomials_are_found_from_a_few_sizes_and_refuse_other_sizes():
    sizes = [(b, n) for b in (2, 9) for n in (16, 40, 100)]
    piece = Piece({(b, n): f"{b * n} of {n * (n + 1) // 2}, 7" for b, n in sizes})
    assert piece.template == "@0 of @1, 7"
    assert instantiated(piece.template, piece.polynomials, 5, 6) == "30 of 21, 7"
    assert not Piece({(b, n): f"{min(n, 30) * b}" for b, n in sizes}).gives("200", 5, 40)
    with pytest.raises(SpecError, match="differ in more than numbers"):
        Piece({(1, 16): "x 3", (1, 17): "y 3"})


def test_a_size_that_is_not_whole_is_refused():
    with pytest.raises(SpecError, match="would not be whole"):
        instantiated("@0", [(2, 0, 1)], batch=3, length=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_of_the_dimensions_of_today(name):
    assert contents_of(name)[0].dimensions == dimensions_digest(MODELS[name]), (
        f"the dimensions of {name} changed: python -m benchmarks.step_library {name}"
    )


def test_the_library_takes_at_most_two_megabytes():
    assert sum(file.stat().st_size for file in FOLDER.glob("*.xz")) <= 2_000_000


def test_a_step_of_the_library_is_the_captured_one():
    needs_the_packages_that_captured("gpt2")
    assert difference("gpt2", replace(LLAMA, batch=1)) == ""
    assert difference("gpt2", LLAMA) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(Random(39).sample(NAMES, min(6, len(NAMES))), 3))
def test_a_sample_of_the_library_is_what_is_captured_today(name):
    needs_the_packages_that_captured(name)
    assert difference(name, size_within(name, Random(name))) == ""


def test_named_models_answer_without_pytorch(absent):
    import nearpeak

    step = captured("llama-3-8b", LLAMA)
    answers = nearpeak.analyze(step, ["h100_sxm", "h200_sxm", "b200_sxm", "mi300x"]).targets
    assert len(answers) == 4
    assert "comes with nearpeak" in step.assumptions[-1]


def test_formats_are_applied_to_a_step_of_the_library(absent):
    step = captured("llama-3-8b", replace(LLAMA, weights="fp8", kv_cache="fp8"))
    assert any(dict(call.case.dtypes).get("b_dtype") == "fp8_e4m3" for call in step.calls if call.case)


@pytest.mark.parametrize("change", [{"batch": 2**20}, {"dtype": "fp16"}, {"autocast": "bf16"}])
def test_what_the_library_lacks_names_the_extra_and_what_it_has(absent, change):
    with pytest.raises(MissingExtraError, match=r"nearpeak\[hf\].*comes with nearpeak: forward in bf16 at batch 1 to"):
        captured("llama-3-8b", replace(LLAMA, **change))


def test_other_releases_of_the_packages_capture_anew(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(source_types, "version", lambda package: "0.0")
    monkeypatch.setattr(source_types, "capture_isolated", lambda *_, **__: "captured anew")
    assert captured("llama-3-8b", LLAMA) == "captured anew"
