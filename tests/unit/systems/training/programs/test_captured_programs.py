"""Programs by rule against captured steps of transformers' models: the same kernels and collectives, to the integer."""

from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from nearpeak.core.systems.training_plan import TrainingPlan  # noqa: E402
from nearpeak.core.systems.transformer import Experts, LatentAttention  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.huggingface.transformer_models import shape_from_extents  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.systems.training.programs.data_parallelism import data_parallelism  # noqa: E402
from nearpeak.systems.training.programs.plan_layout import plan_layout  # noqa: E402
from nearpeak.systems.training.programs.stage_program import rank_program  # noqa: E402
from nearpeak.systems.transformer.layer import layer_calls  # noqa: E402
from nearpeak.systems.transformer.token_batch import TrainingBatch  # noqa: E402

RANKS, LENGTH, SEQUENCES = 4, 32, 2
LLAMA = shape_from_extents(hidden=64, layers=2, heads=8, kv_heads=4, ffn=128, vocabulary=250, like="llama", name="tiny")
PRELUDE = ("int64", "bool", "elements=4 ", "elements=1 ", "a=32 b=4 ", "elements=256 a=256 b=0", "elements=256 read")
"""Marks of what runs once before the layers (positions, tables of sines, checks of the mask), and of the loss."""


@pytest.fixture(scope="module", autouse=True)
def group():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def mesh():
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (RANKS,))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=250, max_position_embeddings=64, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(torch.bfloat16)


def replicated():
    return torch.nn.parallel.DistributedDataParallel(llama())


def sharded():
    from torch.distributed.fsdp import fully_shard

    model = llama()
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh())
    return fully_shard(model, mesh=mesh())


def split():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = llama()
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    rows = ("self_attn.o_proj", "mlp.down_proj")
    for layer in model.model.layers:
        styles = {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows}
        parallelize_module(layer, mesh(), styles)
    return model


def tokens():
    ids = torch.zeros((SEQUENCES, LENGTH), dtype=torch.long)
    return (), {"input_ids": ids, "labels": ids}


def captured(build, inputs=tokens):
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1, foreach=False)

    workload = capture_torch(build, inputs, CaptureOptions(step="train"), name="tiny", optimizer=sgd)
    calls = Counter()
    for call in workload.calls:
        if call.case is None or call.phase == "optimizer":
            continue
        record = call.case.record()
        if call.case.op == "collective":
            calls[call.phase, f"{record['kind']} of {record['elements'] * 2} bytes"] += call.call_count
        else:
            calls[call.phase, call.case.label().replace("touched_rows=1 ", "")] += call.call_count
    return calls


def ruled(plan, shape=LLAMA, **layout):
    # The model holds bf16 parameters, whose gradients are reduced as they are.
    style = replace(data_parallelism(plan), gradient_dtype="bf16")
    program = rank_program(shape, plan, style=style, layout=replace(plan_layout(shape, plan), **layout))
    passes = {"forward": program.forward, "backward": (*program.backward, *program.weight, *program.gradient)}
    return counted(passes)


def counted(passes):
    calls = Counter()
    for phase, part in passes.items():
        for call in part:
            if call.transfer:
                calls[phase, f"{call.transfer.kind} of {call.transfer.bytes} bytes"] += call.count
            else:
                calls[phase, call.case.label().replace(f"touched_rows={SEQUENCES * LENGTH} ", "")] += call.count
    return calls


def plan_of(**degrees):
    batch = SEQUENCES * degrees.get("dp", 1)
    return TrainingPlan(micro_batch=SEQUENCES, global_batch=batch, sequence=LENGTH, **{"framework": "fsdp2", **degrees})


def without_prelude(calls):
    return {key: count for key, count in calls.items() if not any(mark in f"{key[1]} " for mark in PRELUDE)}


@pytest.mark.parametrize(
    ("build", "plan", "layout"),
    [
        (llama, plan_of(), {}),
        (replicated, plan_of(dp=RANKS, framework="ddp"), {}),
        (sharded, plan_of(dp=RANKS, sharding="fsdp"), {}),
        (split, plan_of(tp=RANKS), {"reduces_each_projection": True, "splits_vocabulary": False}),
    ],
    ids=["one rank", "DDP", "fully_shard", "DTensor"],
)  # fmt: skip
def test_every_kernel_and_collective_of_a_captured_step_follows_from_the_rules(build, plan, layout):
    assert without_prelude(captured(build)) == without_prelude(ruled(plan, **layout))


class Layer(torch.nn.Module):
    """One layer whose input and output are split by sequence."""

    def __init__(self):
        super().__init__()
        self.layer = llama().model.layers[0]

    def forward(self, hidden, cosines, sines):
        return self.layer(hidden, position_embeddings=(cosines, sines))


def split_by_sequence():
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    whole, part = Replicate(), Shard(1)
    styles = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    styles |= {f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    styles |= {name: RowwiseParallel(output_layouts=part) for name in ("self_attn.o_proj", "mlp.down_proj")}
    styles |= {f"{name}_layernorm": SequenceParallel(use_local_output=True) for name in ("input", "post_attention")}
    styles["self_attn"] = PrepareModuleInput(
        input_kwarg_layouts={"hidden_states": part}, desired_input_kwarg_layouts={"hidden_states": whole}
    )
    styles["mlp"] = PrepareModuleInput(input_layouts=(part,), desired_input_layouts=(whole,))
    model = Layer()
    parallelize_module(model.layer, mesh(), styles)
    return model


def test_a_layer_split_by_sequence_follows_from_the_rules():
    def inputs():
        hidden = torch.zeros(SEQUENCES, LENGTH // RANKS, 64, dtype=torch.bfloat16, requires_grad=True)
        table = torch.zeros(1, LENGTH, 8, dtype=torch.bfloat16)
        return (hidden, table, table), {}

    layout = plan_layout(LLAMA, plan_of(tp=RANKS, sequence_parallel=True))
    calls = layer_calls(LLAMA, layout, TrainingBatch(sequences=SEQUENCES, length=LENGTH))
    passes = {"forward": calls.forward, "backward": (*calls.backward, *calls.weight)}
    loss = ("function=mean bf16", "function=div bf16", "fill ")
    found = {
        key: n for key, n in captured(split_by_sequence, inputs).items() if not any(mark in key[1] for mark in loss)
    }
    assert found == counted(passes)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=250, n_positions=64)).to(
        torch.bfloat16
    )


def deepseek():
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = DeepseekV3Config(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=250, q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
        first_k_dense_replace=2, max_position_embeddings=64, use_cache=False,
    )  # fmt: skip
    return DeepseekV3ForCausalLM(config).to(torch.bfloat16)


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=250, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64, use_cache=False,
    )  # fmt: skip
    return MixtralForCausalLM(config).to(torch.bfloat16)


def products(calls):
    """Axes of the products alone: how weights lie and where biases are added differs between classes."""
    found = Counter()
    for (_, label), count in calls.items():
        words = label.split()
        extents = dict(word.split("=") for word in words if "=" in word)
        if words[0] == "gemm":
            found["gemm", extents["k"], *sorted((extents["m"], extents["n"]))] += count
        elif words[0] == "grouped_gemm":
            found[tuple(extents[axis] for axis in ("m", "n", "k", "groups", "split"))] += count
        elif words[0] == "attention":
            found[tuple(extents[axis] for axis in ("heads", "kv_heads", "q", "kv", "dim", "v_dim")), words[1]] += count
    return found


EXTENTS = {"hidden": 64, "layers": 2, "heads": 4, "vocabulary": 250, "ffn": 128}
LATENT = LatentAttention(query_rank=24, cache_rank=16, rotary_width=8, key_width=16, value_width=16)
EXPERTS = Experts(count=4, per_token=2, width=128)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (gpt2, shape_from_extents(**EXTENTS | {"ffn": 256}, like="gpt2", position_count=64)),
        (deepseek, shape_from_extents(**EXTENTS, like="deepseek_v3", latent=LATENT)),
        (mixtral, shape_from_extents(**EXTENTS, kv_heads=2, like="mixtral", experts=EXPERTS)),
    ],
    ids=["gpt2", "latent attention", "experts"],
)  # fmt: skip
def test_products_of_other_classes_follow_from_the_rules(build, shape):
    fusions = plan_layout(shape, plan_of()).fusions | ({"qkv"} if build is gpt2 else set())
    assert products(captured(build)) == products(ruled(plan_of(), shape, fusions=fusions))
