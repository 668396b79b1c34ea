"""Names of cases and devices in narrow tables: what differs stays, and nothing is cut inside a number or name."""

import pytest

from nearpeak.reports.document import Document, columns
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.figure_text import told_apart
from nearpeak.reports.history.regressions import _series_table

PRODUCTS = [f"gemm m={m} n={n} k=4096 bf16" for m, n in ((4096, 4096), (2048, 50257), (2048, 4096))]
SOFTMAX = ["softmax rows=8192 columns=8192 bf16"] * 2
DEVICES = ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"]


@pytest.mark.parametrize("texts", [PRODUCTS, SOFTMAX, DEVICES, PRODUCTS + SOFTMAX])
@pytest.mark.parametrize("width", range(20, 40))
def test_a_cut_falls_between_words_and_leaves_different_texts_different(texts, width):
    shorts = told_apart(texts, width)
    assert max(map(len, shorts)) <= width
    assert len(set(shorts)) == len(set(texts))
    for text, short in zip(texts, shorts, strict=True):
        assert {word.removesuffix("…") for word in short.split()} <= {*text.split(), ""}


def test_what_all_series_of_a_group_share_is_written_once_and_whole():
    heads = columns("#series|", "label|", "testbed|", "device|", "course|", "#change_ratio|")
    rows = [(number, SOFTMAX[0], runner, DEVICES[1], "▁" * 10, "+4.0 %")
            for number, runner in ((3, "triton"), (11, "torch_cuda"))]  # fmt: skip
    text = to_terminal(Document(blocks=list(_series_table(heads, rows))), width=80)
    assert text.splitlines()[0] == f"  {SOFTMAX[0]}, {DEVICES[1]}:"
    assert "…" not in text


def test_rows_of_a_group_differ_at_80_columns():
    heads = columns("#series|", "label|", "testbed|", "device|", "course|", "#change_ratio|")
    pairs = [(label, device) for label in PRODUCTS for device in DEVICES]
    rows = [(number, label, "torch_cuda", device, "▁" * 10, "+5.0 %") for number, (label, device) in enumerate(pairs)]
    lines = to_terminal(Document(blocks=list(_series_table(heads, rows))), width=80).splitlines()[1:9]
    assert len({line[4:] for line in lines}) == 8
