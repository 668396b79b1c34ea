"""The device report of the first GPU: written, shown, and without faults."""

import pytest
from benchmarks.device.__main__ import save
from benchmarks.device.report import device_report
from benchmarks.device.text import to_terminal

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees"),
]
REPORT_SHARE_RATIO = 0.65
"""Share of the time for all tests of a device that its report may take."""


def test_the_report_of_this_gpu_has_no_faults(capsys, device_seconds):
    with capsys.disabled():
        report = device_report("torch_cuda", seconds=REPORT_SHARE_RATIO * device_seconds, keep=save)
        print(f"\n{to_terminal(report)}")
        print(f"wrote {' and '.join(map(str, save(report)))}")
    assert report["faults"] == []  # what there was no time for stands at the head of the report
