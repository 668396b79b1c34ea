"""The library of steps: equal to captures of today, current, small, and read without PyTorch."""

import re
from dataclasses import replace
from random import Random

import pytest
from benchmarks._step_template import Piece, fitted
from benchmarks.step_library import Part, difference, shallow, size_within
from tests.sampling import sampled

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import MissingExtraError, SpecError
from nearpeak.frontends import source_types
from nearpeak.frontends.files.step_template import NUMBER, folded, instantiated, unfolded
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
    piece = fitted({(b, n): f"{b * n} of {n * (n + 1) // 2}, 7" for b, n in sizes})
    assert piece.template == "@0 of @1, 7"
    assert instantiated(piece.template, piece.polynomials, 5, 6) == "30 of 21, 7"
    assert not fitted({(b, n): f"{min(n, 30) * b}" for b, n in sizes}).gives("200", (5, 40))
    with pytest.raises(SpecError, match="differ in more than numbers"):
        fitted({(1, 16): "x 3", (1, 17): "y 3"})


def layers(count, batch, length):
    """Layers in turn of two kinds, one of which sees 64 positions, with running numbers and one whose value is 7."""
    kinds = [f'{{"layer":{i},"kv":{64 * batch if i % 2 else batch * length},"id":{3 * i + 1}}}' for i in range(count)]
    return f'[{",".join(kinds)},{{"batch":{batch}}}]'


def test_a_deeper_model_takes_the_polynomials_of_a_shallow_one():
    few = fitted({(b, n): layers(4, b, n) for b in (2, 9) for n in (100, 300)})
    deep = few.deeper(layers(30, 7, 1000), (7, 1000))
    assert deep.gives(layers(30, 5, 123), (5, 123))
    assert set(deep.polynomials) == set(few.polynomials)
    with pytest.raises(SpecError, match="other words"):
        few.deeper(layers(30, 7, 1000).replace("kv", "keys", 1), (7, 1000))
    with pytest.raises(SpecError, match="450 is no polynomial"):
        few.deeper(layers(30, 7, 1000).replace("448", "450", 1), (7, 1000))


@pytest.mark.parametrize("name", ["gpt2", "resnet-18", "whisper-tiny"])
def test_one_text_of_a_shipped_step_tells_which_polynomial_stands_where(name):
    contents, templates = contents_of(name)
    regions = [(step, region) for step in contents.steps for region in step.regions]
    for (step, region), folded_template in zip(regions, templates, strict=True):
        template = unfolded(folded_template).replace(",\n", ",")
        parts = re.split(rf"(@\d+|{NUMBER.pattern.replace('(0', '(?:0')})", template)
        fields = [region.polynomials[int(part[1:])] if part[0] == "@" else int(part) for part in parts[1::2]]
        piece = Piece(parts[::2], fields)
        part = Part(piece=piece, batch=region.batch, length=region.length, most_tokens=region.token_count[1])
        corner, inner = part.corner(), part.inner(step.length)
        assert region.holds(*corner)
        assert region.holds(*inner)
        deep = piece.deeper(instantiated(template, piece.polynomials, *corner), corner)
        assert instantiated(deep.template, deep.polynomials, *inner) == instantiated(
            template, piece.polynomials, *inner
        )


def test_a_shallow_model_has_each_kind_of_layer():
    assert shallow(MODELS["gemma-3-4b"], 4).config["num_hidden_layers"] == 8
    assert shallow(MODELS["deepseek-v3"], 4).config["num_hidden_layers"] == 5
    assert shallow(MODELS["gpt2"], 16) is MODELS["gpt2"]


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
