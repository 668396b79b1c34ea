"""Accuracy from training: tasks of users, controls trained as long, and what is refused."""

import pytest

from nearpeak.api.model_precision import training_precision
from nearpeak.errors import MissingExtraError, NearpeakError
from nearpeak.precision.quantisation import training_trials
from nearpeak.precision.quantisation.training_trials import task_function, trained_accuracies

TASK = """
class Model:
    def __init__(self, seed): self.seed, self.bits, self.epochs = seed, 32, 0

def make(seed):
    def fit(model, epochs): model.epochs += epochs
    def accuracy(model): return min(1.0, (0.5 if model.bits == 2 else 0.9) + 0.01 * model.epochs + 0.001 * model.seed)
    return {"model": Model(seed), "fit": fit, "accuracy": accuracy}

def nothing(seed): return {"model": Model(seed)}
def wrong(seed): return make(seed) | {"accuracy": lambda model: 97.0}
"""


class Library:
    """Stands for the library that quantises."""

    @staticmethod
    def quantize(model, config, calibrate):
        calibrate(model)
        model.bits = config["quant_cfg"][1]["cfg"]["num_bits"]
        return model


@pytest.fixture
def task(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    path = tmp_path / "task.py"
    path.write_text(TASK)
    monkeypatch.setattr(training_trials, "_library", lambda: Library)
    return path


def test_each_seed_has_a_control_that_was_trained_as_long(task):
    found = trained_accuracies(f"{task}:make", ["int8", "int2"], ["int2"], 3, 4)
    control = found["fp32"][0]
    assert control.right_ratio == pytest.approx((0.94, 0.941, 0.942))
    assert [one.trained for one in found["int2"]] == ["ptq", "qat"]
    ptq, qat = found["int2"]
    assert ptq.right_ratio == pytest.approx((0.5, 0.501, 0.502))
    assert qat.right_ratio == pytest.approx((0.54, 0.541, 0.542))
    assert qat.difference_ratio == pytest.approx(-0.4)
    assert found["int8"][0].control_ratio == control.right_ratio


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "returns no 'fit'"), ("missing", "defines no function 'missing'"), ("wrong", "between 0 and 1")],
)
def test_tasks_that_are_none_are_refused_in_one_line(task, name, message):
    with pytest.raises(NearpeakError, match=message):
        trained_accuracies(f"{task}:{name}", ["int8"], [], 1, 1)


def test_files_that_do_not_import_are_refused(tmp_path):
    (tmp_path / "bad.py").write_text("raise ValueError('no')")
    with pytest.raises(NearpeakError, match="cannot be imported: ValueError: no"):
        task_function(f"{tmp_path / 'bad.py'}:make")
    with pytest.raises(NearpeakError, match=r"is no FILE\.py:FUNCTION"):
        training_precision("task", ptq=("int8",))
    with pytest.raises(NearpeakError, match="int9"):
        training_precision("task.py:make", ptq=("int9",))


def test_a_missing_library_names_its_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "modelopt", None)
    monkeypatch.setitem(sys.modules, "modelopt.torch", None)
    monkeypatch.setitem(sys.modules, "modelopt.torch.quantization", None)
    with pytest.raises(MissingExtraError, match="quantisation"):
        training_trials._library()
