"""Training runs: parameters of the models, equal losses, phases that add up, page cache, clocks, power modes."""

import numpy as np
import pytest

from nearpeak.core.edge.training_matrix import PHASES, TrainingCell
from nearpeak.errors import MeasureError, SpecError
from nearpeak.measurement.training import page_residency
from nearpeak.measurement.training.batch_clock import BatchClock
from nearpeak.measurement.training.board_state import board_facts, change_mode, power_modes, present_mode
from nearpeak.measurement.training.small_models import build_model
from nearpeak.measurement.training.training_data import KINDS, TrainingItems, gather, image_form, make_data
from nearpeak.measurement.training.training_run import run_cell

torch = pytest.importorskip("torch")


def cell(**changes):
    given = {"model": "lenet5", "batch": 16, "worker_count": 0, "cache": "cold", "item_count": 72, "epoch_count": 2,
             "telemetry_hz": 0.0}  # fmt: skip
    return TrainingCell(**(given | changes))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def logs(data):
    return {workers: run_cell(cell(worker_count=workers), data) for workers in (0, 2)}


@pytest.mark.parametrize(
    ("model", "classes", "count"),  # 61,706: LeCun et al. with dense maps; the others as torchvision states them
    [("lenet5", 10, 61_706), ("resnet18", 10, 11_173_962), ("mobilenetv3", 1000, 5_483_032)],
)
def test_models_have_published_parameters(model, classes, count):
    built = build_model(model, classes)
    assert sum(parameter.numel() for parameter in built.parameters()) == count
    kind = KINDS[model]
    with torch.no_grad():
        assert built.eval()(torch.zeros(1, kind.channel_count, kind.width, kind.width)).shape == (1, classes)


def test_group_norm_keeps_parameters_and_seeds_keep_weights():
    assert sum(p.numel() for p in build_model("resnet18", 10, norm="group").parameters()) == 11_173_962
    first, second = (next(build_model("lenet5", 10, seed=3).parameters()) for _ in range(2))
    assert torch.equal(first, second)
    with pytest.raises(SpecError, match="vgg"):
        build_model("vgg", 10)


def test_losses_are_equal_whoever_loads(logs):
    one, other = (log.epochs for log in logs.values())
    assert [epoch.quantities for epoch in one] == [epoch.quantities for epoch in other]
    assert one[1].quantities["loss"] < one[0].quantities["loss"]
    assert one[1].quantities["accuracy"] > one[0].quantities["accuracy"]


def test_phases_add_up_to_the_epoch(logs):
    for log in logs.values():
        for epoch in log.epochs:
            assert sum(epoch.phases_s.values()) == pytest.approx(epoch.epoch_s, rel=0.01)
            assert {len(values) for values in epoch.channels.values()} == {5}
            assert all(min(epoch.channels[f"{name}_ns"]) >= 0 for name in PHASES)
            assert sum(epoch.channels["item_bytes"]) == 72 * 28 * 28


def test_workers_are_named(logs):
    assert set(logs[0].epochs[0].channels["worker"]) == {-1}
    assert logs[2].epochs[0].channels["worker"] == (0, 1, 0, 1, 0)


def test_every_log_is_filled(logs):
    log = logs[2]
    assert {"mode", "storage", "data", "cold", "energy", "sensors"} <= set(log.facts)
    assert log.facts["energy"].startswith("not measured")
    assert log.environment.device
    for epoch in log.epochs:
        assert epoch.data_bytes == 72 * 28 * 28 + 128
        assert epoch.major_fault_count >= 0


def test_page_cache_is_seen_emptied_and_filled(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(300_000))
    page_residency.read_pages([path])
    assert page_residency.resident_bytes([path]) in (300_000, -1)
    page_residency.drop_pages([path])
    assert page_residency.resident_bytes([path]) <= 300_000
    (tmp_path / "empty").touch()
    assert page_residency.resident_bytes([tmp_path / "empty"]) in (0, -1)


@pytest.mark.parametrize("model", ["resnet18", "mobilenetv3"])
def test_data_is_made_from_its_seed(tmp_path, model):
    kind = KINDS[model]
    first, second = (TrainingItems(kind, make_data(kind, 4, 5, tmp_path / name), 0) for name in "ab")
    assert [path.read_bytes() for path in first.files] == [path.read_bytes() for path in second.files]
    item = first[1]
    assert item.image.shape == (kind.channel_count, kind.width, kind.width)
    assert item.image.dtype == np.float32
    assert -1 <= item.image.min() < item.image.max() <= 1
    assert np.array_equal(item.image, second[1].image)
    first.epoch = 1
    assert not np.array_equal(first[1].image, item.image)  # crops and shifts differ from epoch to epoch
    images, labels, loaded = gather([first[0], first[1]])
    assert (tuple(images.shape), labels.tolist()) == ((2, kind.channel_count, kind.width, kind.width), first.labels[:2])
    assert (loaded[2], loaded[3]) == (-1, first[0].size_bytes + first[1].size_bytes)
    assert not kind.is_files or first.files[0].suffix == f".{image_form()}"


def test_a_folder_without_data_is_refused(tmp_path):
    with pytest.raises(SpecError, match="no data set"):
        TrainingItems(KINDS["lenet5"], tmp_path, 0)


class Cuda:
    """A device that records events at scripted milliseconds."""

    def __init__(self, times_ms):
        self.times_ms, self.count = iter(times_ms), 0

    def Event(self, *, enable_timing):  # noqa: N802
        assert enable_timing
        return Event(self)

    def synchronize(self):
        self.count += 1


class Event:
    def __init__(self, cuda):
        self.cuda, self.at_ms = cuda, None

    def record(self):
        self.at_ms = next(self.cuda.times_ms)

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


def test_phases_of_a_device_come_from_events_and_one_wait():
    cuda = Cuda([0, 5, 6, 10, 19, 20, 22, 23, 27, 36, 37])
    clock = BatchClock(cuda)
    clock.start()
    for _ in range(10):
        clock.mark()
    assert cuda.count == 0
    clock.finish()
    clock.stop()
    assert {name: [value / 1e6 for value in values] for name, values in clock.phases_ns().items()} == {
        "wait_ns": [5, 2], "h2d_ns": [1, 1], "forward_ns": [4, 4], "backward_ns": [9, 9], "optimizer_ns": [1, 1],
    }  # fmt: skip
    assert cuda.count == 1


def board(root, number=None):
    (root / "etc").mkdir()
    (root / "etc/nvpmodel.conf").write_text(
        "# < POWER_MODEL ID=id_num NAME=mode_name >\n< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_1 1\n"
        "< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"
    )
    (root / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.3\n")
    if number is not None:
        (root / "var/lib/nvpmodel").mkdir(parents=True)
        (root / "var/lib/nvpmodel/status").write_text(f"pmode:{number:04d}\n")
    return root


def test_power_mode_of_a_board(tmp_path):
    root = board(tmp_path, 2)
    assert power_modes(root) == {"15W": 0, "MAXN_SUPER": 2}
    assert present_mode(root) == "MAXN_SUPER"
    assert board_facts(root, root) == {"storage": "no block device", "l4t": "R36 (release), REVISION: 4.3"}
    (root / "var/lib/nvpmodel/status").write_text("pmode:0007")
    assert present_mode(root) == "mode 7"


def test_modes_are_not_changed_on_the_way(data):
    with pytest.raises(SpecError, match="--allow-mode-changes"):
        run_cell(cell(mode="a mode that no machine is in"), data)
    with pytest.raises(SpecError, match="no Jetson board"):
        change_mode("a mode that no machine is in")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_device_that_is_not_there(data):
    with pytest.raises(MeasureError, match="no CUDA device"):
        run_cell(cell(device="cuda"), data)
