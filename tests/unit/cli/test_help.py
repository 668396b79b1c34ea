"""Help: examples that work when pasted, hints at the right words, and words where people look for an answer."""

import pytest
from typer.testing import CliRunner

from nearpeak.api.case_words import case_of
from nearpeak.cli import application
from nearpeak.errors import UnknownNameError
from nearpeak.gate.policy_file import policy_of
from nearpeak.tuning.space_file import read_space_file

SOFTMAX = ("softmax", "rows=4", "columns=8", "dtype=fp32")


def help_of(*words):
    return CliRunner().invoke(application(), [*words, "--help"]).output


def test_the_space_and_kernel_in_the_help_of_tune_work_when_pasted(tmp_path):
    torch = pytest.importorskip("torch")
    _, _, example = help_of("tune").partition("Example of space.toml")
    space, _, kernel = example.partition("Its kernel.py:\n")
    (tmp_path / "space.toml").write_text(space.partition("\n")[2])
    (tmp_path / "kernel.py").write_text(kernel)
    read = read_space_file(tmp_path / "space.toml", lambda words: case_of(words, "case"))
    assert read.space.parameters[0].name == "block"
    names = {}
    exec(kernel, names)
    x = torch.rand(8, 4)
    assert torch.equal(names["softmax"]({"x": x}, block=3, log=False)["y"], x.softmax(-1))


def test_the_policy_in_the_help_of_gate_works_when_pasted():
    _, _, example = help_of("gate").partition("Example of nearpeak-gate.toml")
    policy = policy_of(example.partition("\n")[2], "nearpeak-gate.toml")
    assert [rule.baseline for rule in policy.rules] == ["rolling", "bound"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("k.py:f", "callable:k.py:f"), ("k:f", "callable:k:f"), ("k.py", "callable:k.py:FUNCTION"),
     ("k.py:f[block=16]", "callable:k.py:f[block=16]")],
)  # fmt: skip
@pytest.mark.parametrize(
    "words", [("compare", "numpy", "RUNNER"), ("compare", "RUNNER", "numpy"), ("measure", "--runner", "RUNNER"),
              ("validate", "--runner", "RUNNER")],
)  # fmt: skip
def test_a_function_in_place_of_a_runner_is_told_how_to_be_one(words, written, meant):
    words = [written if word == "RUNNER" else word for word in words]
    error = CliRunner().invoke(application(), [*words, *SOFTMAX]).exception
    assert isinstance(error, UnknownNameError)
    assert f"a function of yours is {meant} " in str(error)


@pytest.mark.parametrize(
    ("words", "question"),
    [((), "largest batch that fits"), ((), "which device is fastest"), ((), "what each extra adds"),
     (("analyze",), "Several --target stand side by side"), (("analyze",), "the largest batch that fits"),
     (("plan",), "which plan is fastest or cheapest"), (("show",), "models known by name")],
)  # fmt: skip
def test_questions_are_found_in_the_help(words, question):
    assert question in " ".join(help_of(*words).split())
