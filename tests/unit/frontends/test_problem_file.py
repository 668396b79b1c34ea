"""Problem files: every one of the collection is captured, without memory; a bad one is one clear line."""

from pathlib import Path

import pytest
from tests.sampling import sampled

torch = pytest.importorskip("torch")
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import CaptureError, SpecError  # noqa: E402
from nearpeak.frontends.torch.problem_file import capture_problem  # noqa: E402

PROBLEMS = sorted((Path(__file__).parents[2] / "fixtures" / "problems").glob("*.py"))

GOOD = {
    "Model": "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n",
    "get_inputs": "def get_inputs():\n    return [torch.rand(4)]\n",
}


def written(folder, **parts):
    path = folder / "mine.py"
    path.write_text("import torch\nfrom torch import nn\n" + "\n".join((GOOD | parts).values()))
    return path


def kernels(path, **options):
    return [call.operator for call in capture_problem(path, CaptureOptions(**options)).calls]


def named(stem):
    return next(path for path in PROBLEMS if path.stem == stem)


@pytest.mark.parametrize("path", sampled(PROBLEMS, 14), ids=lambda path: path.stem)
def test_every_problem_is_captured_without_memory(path):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        workload = capture_problem(path)
    events = seen.profiler.kineto_results.events()
    sizes = [event.nbytes() for event in events if event.name() == "[memory]"]
    assert max(sizes, default=0) <= 1_000_000
    assert all(call.source.startswith((path.name, "torch/")) for call in workload.calls)


def test_there_are_at_least_thirty_problems():
    assert len(PROBLEMS) >= 30


def test_files_stay_in_training_mode_unless_evaluation_is_asked_for():
    path = named("linear_dropout_softmax")
    assert "aten.native_dropout.default" in kernels(path)
    assert "aten.native_dropout.default" not in kernels(path, training=False)


def test_a_file_may_be_captured_as_a_training_step():
    phases = {call.phase for call in capture_problem(named("perceptron"), CaptureOptions(step="train")).calls}
    assert phases == {"forward", "backward", "optimizer"}


def test_the_format_can_be_changed():
    workload = capture_problem(named("linear_residual_scale"), CaptureOptions(dtype="bf16"))
    assert {b.bytes for b in workload.buffers if b.kind == "weight"} == {2 * 4096 * 4096}


def test_dead_results_stay_visible_as_storages_nobody_reads():
    workload = capture_problem(named("dead_branch"))
    read = {use.buffer for call in workload.calls for use in call.reads}
    unread = [i for i, b in enumerate(workload.buffers) if b.kind == "activation" and i not in read]
    assert len(unread) == 1


def test_calls_name_the_line_of_the_file():
    path = named("views_twice")
    line = 1 + path.read_text().splitlines().index("        return x[:, 1:] - x[:, :-1]")
    assert capture_problem(path).calls[0].source == f"views_twice.py:{line}"


def test_a_file_may_import_its_neighbour_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "neighbour_of_mine.py").write_text("WIDTH = 8\n")
    path = written(
        tmp_path, get_inputs="import neighbour_of_mine as n\ndef get_inputs():\n    return [torch.rand(n.WIDTH)]"
    )
    before = list(__import__("sys").path)
    assert capture_problem(path).buffers[0].bytes == 32
    assert __import__("sys").path == before
    assert not (tmp_path / "__pycache__").exists()


def test_keyword_inputs_are_accepted(tmp_path):
    path = written(tmp_path, get_inputs="def get_inputs():\n    return {'x': torch.rand(4)}")
    assert capture_problem(path).buffers[0].name == "x"


@pytest.mark.parametrize(("parts", "message"), [
    ({"Model": ""}, "it has no Model; a problem file defines"),
    ({"get_inputs": ""}, "it has no get_inputs"),
    ({"Model": "class Model(:"}, r"reading the file raised SyntaxError: .*\(mine.py:3\)"),
    ({"top": "1 / 0"}, r"reading the file raised ZeroDivisionError: division by zero \(mine.py:10\)"),
    ({"get_inputs": "def get_inputs():\n    return [torch.rand(-1)]"}, r"get_inputs\(\) raised .*py:8\)"),
    ({"top": "def get_init_inputs():\n    return [1]"}, r"Model\(\) raised TypeError"),
    ({"get_inputs": "def get_inputs():\n    return []"}, "forward raised TypeError: .*missing 1 required"),
    ({"Model": "class Model(nn.Module):\n    def forward(self, x):\n        return x"}, "nothing to analyse"),
])  # fmt: skip
def test_a_bad_file_is_one_line_that_names_stage_and_line(tmp_path, parts, message):
    with pytest.raises((CaptureError, SpecError), match=message) as caught:
        capture_problem(written(tmp_path, **parts))
    assert "mine" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        capture_problem(tmp_path / "absent.py")
