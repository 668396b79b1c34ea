"""Recurrent layers over packed sequences do the work of the steps that exist, not of the padding."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

import nearpeak  # noqa: E402
from nearpeak.errors import CaptureError  # noqa: E402

LENGTHS = [5, 2, 2]


class Packed(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(4, 8, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]


def runs(workload):
    """Return sequences and steps of each recurrent call."""
    cases = [call.case.record() for call in workload.calls if call.case is not None and call.case.op == "recurrent"]
    return [(case["batch"], case["steps"]) for case in cases]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda kind: kind.__name__)
def test_each_run_of_equally_many_sequences_is_one_call(kind):
    workload = nearpeak.capture(Packed(kind), inputs=(torch.rand(3, 5, 4), torch.tensor([2, 5, 2])))
    assert runs(workload) == [(3, 2), (1, 3)]
    assert not workload.uncovered_counts()
    assert next(b.bytes for b in workload.buffers if b.kind == "output") == 3 * 5 * 8 * 4


def test_gradients_pass_through_packed_sequences():
    workload = nearpeak.capture(Packed(nn.LSTM), inputs=(torch.rand(3, 5, 4), torch.tensor(LENGTHS)), step="train")
    assert sorted(runs(workload)) == [(1, 3), (1, 3), (3, 2), (3, 2)]


def test_a_packed_sequence_may_be_the_input():
    packed = pack_sequence([torch.rand(5, 4), torch.rand(2, 4)])
    assert runs(nearpeak.capture(nn.LSTM(4, 8), inputs=(packed,))) == [(2, 2), (1, 3)]


def test_unknown_lengths_are_refused_in_one_line():
    with pytest.raises(CaptureError, match="lengths of packed sequences are not known"):
        nearpeak.capture(
            lambda x: pack_padded_sequence(x, (x.sum((1, 2)) > 0).long() + 1, batch_first=True, enforce_sorted=False),
            inputs=(torch.rand(3, 5, 4),),
        )
