"""Memory of small sharded models against PyTorch's own memory tracker, on fake tensors."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.sampling import long

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.training.memory.memory_peak import rank_memory

GATED = TransformerShape(
    name="gated", layer_count=3, hidden=512, head_count=8, kv_head_count=4, head_width=64, ffn=1536, is_gated=True,
    vocabulary=8192,
)  # fmt: skip
PLAIN = replace(
    GATED, is_gated=False, kv_head_count=8, ffn=2048, norm="layer_norm", has_bias=True, positions="learned",
    position_count=1024,
)  # fmt: skip
FSDP = TrainingPlan(dp=8, micro_batch=2, global_batch=16, sequence=1024, framework="fsdp2", sharding="fsdp")
TP = TrainingPlan(tp=8, micro_batch=2, global_batch=2, sequence=1024, framework="fsdp2", precision="fp32")
ONE_HEAD = replace(PLAIN, vocabulary=512)
PAIRS = [
    (GATED, FSDP),
    (replace(GATED, vocabulary=512), replace(FSDP, recompute="full")),
    (replace(GATED, vocabulary=32768), replace(FSDP, sequence=64, micro_batch=1, global_batch=8)),
    (ONE_HEAD, replace(FSDP, sharding="zero2")),
    (replace(GATED, vocabulary=512, layer_count=2), replace(FSDP, recompute="full")),
    (replace(ONE_HEAD, layer_count=2), replace(FSDP, sharding="zero2")),
    (ONE_HEAD, TP),
    (replace(GATED, kv_head_count=8, vocabulary=512), replace(TP, sequence_parallel=True)),
]

PROGRAM = """
import json, sys
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.d, b = c["hidden"], c["head_width"], not c["is_gated"]
        self.wq, self.wo = nn.Linear(h, h, bias=b), nn.Linear(h, h, bias=b)
        self.wk, self.wv = (nn.Linear(h, c["kv_head_count"] * self.d, bias=b) for _ in range(2))

    def forward(self, x):
        rows = x.shape[:2]
        q, k, v = (w(x).view(*rows, -1, self.d).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return self.wo(o.transpose(1, 2).reshape(*rows, -1))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, f, b = c["hidden"], c["ffn"], not c["is_gated"]
        self.w1, self.w2 = nn.Linear(h, f, bias=b), nn.Linear(f, h, bias=b)
        self.w3 = nn.Linear(h, f, bias=b) if c["is_gated"] else None

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x)) if self.w3 else self.w2(F.gelu(self.w1(x)))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        norm = nn.RMSNorm if c["is_gated"] else nn.LayerNorm
        self.attention, self.ffn = Attention(c), FeedForward(c)
        self.n1, self.n2, self.recompute = norm(c["hidden"]), norm(c["hidden"]), c["recompute"] == "full"

    def body(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.ffn(self.n2(x))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False) if self.recompute else self.body(x)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["hidden"]
        self.emb, self.out = nn.Embedding(c["vocabulary"], h), nn.Linear(h, c["vocabulary"], bias=False)
        self.pos = nn.Embedding(c["position_count"], h) if c["position_count"] else None
        self.layers = nn.ModuleList(Block(c) for _ in range(c["layer_count"]))
        self.norm = (nn.RMSNorm if c["is_gated"] else nn.LayerNorm)(h)

    def forward(self, tokens):
        x = self.emb(tokens)
        x = x if self.pos is None else x + self.pos(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


def shard(model, mesh, reshards):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.layers, model):
        fully_shard(part, mesh=mesh, mp_policy=policy, **({} if reshards else {"reshard_after_forward": False}))


def split(model, mesh, sp):
    rows = {"output_layouts": Shard(1)} if sp else {}
    ends = {"emb": RowwiseParallel(input_layouts=Replicate(), **rows),
            "out": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False,
                                   **({"input_layouts": Shard(1)} if sp else {}))}
    parts = {f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")} | {"ffn.w1": ColwiseParallel()}
    parts |= {"attention.wo": RowwiseParallel(**rows), "ffn.w2": RowwiseParallel(**rows)}
    if sp:
        gathered = dict(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        ends["norm"] = parts["n1"] = parts["n2"] = SequenceParallel()
        parts |= {"attention": PrepareModuleInput(**gathered), "ffn": PrepareModuleInput(**gathered)}
    parallelize_module(model, mesh, ends)
    for layer in model.layers:
        parallelize_module(layer, mesh, parts | ({"ffn.w3": ColwiseParallel()} if layer.ffn.w3 else {}))


def peak(c, mesh):
    with FakeTensorMode():
        model = Model(c)
        shard(model, mesh, c["sharding"] == "fsdp") if c["dp"] > 1 else split(model, mesh, c["sequence_parallel"])
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

        def step():
            tokens, labels = (torch.randint(0, c["vocabulary"], (c["micro_batch"], c["sequence"])) for _ in range(2))
            F.cross_entropy(model(tokens).flatten(0, 1).float(), labels.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

        def run():
            if c["tp"] > 1:
                with loss_parallel():
                    return step()
            return step()

        run()
        tracker = FSDPMemTracker(model, optimizer) if c["dp"] > 1 else MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            run()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
mesh = init_device_mesh("cpu", (8,))
print(json.dumps([peak(c, mesh) for c in json.load(sys.stdin)]))
"""


@pytest.mark.parametrize("pairs", [PAIRS[2:3] + PAIRS[4:], long(PAIRS)], ids=len)
def test_peaks_equal_those_of_the_tracker_within_one_percent(pairs) -> None:
    pytest.importorskip("torch")
    names = ("hidden", "head_width", "kv_head_count", "ffn", "is_gated", "vocabulary", "position_count", "layer_count")
    axes = ("dp", "tp", "micro_batch", "sequence", "recompute", "sequence_parallel", "sharding")
    asked = [
        {name: getattr(shape, name) for name in names} | {name: getattr(plan, name) for name in axes}
        for shape, plan in pairs
    ]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    tracked = json.loads(ran.stdout.splitlines()[-1])
    ours = [rank_memory(shape, plan).allocated_bytes for shape, plan in pairs]
    errors = [round(100 * (own / truth - 1), 2) for own, truth in zip(ours, tracked, strict=True)]
    assert max(map(abs, errors)) <= 1, errors
