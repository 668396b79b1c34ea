"""Writes files of the PyTorch profiler of any size: a transformer's step over and over, with all that a file has."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

KERNELS = (
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", 96_000),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, "
     "at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)", 6_300),
    ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t> >(Flash_fwd_params)", 41_000),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)", 9_100),
)  # fmt: skip
OPERATORS = ("aten::linear", "aten::add", "aten::scaled_dot_product_attention", "aten::layer_norm")
SHAPES = ("[[16, 512, 1024], [4096, 1024], [4096]]", "[[16, 512, 1024], [16, 512, 1024], []]",
          "[[16, 16, 512, 64], [16, 16, 512, 64], [16, 16, 512, 64]]", "[[16, 512, 1024], [], [1024], [1024]]")  # fmt: skip
HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072,
      "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132
    }
  ],
  "cuda_driver_version": 12090, "record_shapes": 1, "with_stack": 1,
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1751410836000000000,
  "traceEvents": [
"""


def write(path: Path, size_bytes: int, seed: int = 0) -> int:
    """Write a file of about `size_bytes` and return how many events it holds."""
    count = written = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        for events in _steps(random.Random(seed)):
            text = ",\n".join(events)
            file.write(text if not count else ",\n" + text)
            count, written = count + len(events), written + len(text)
            if written >= size_bytes:
                break
        file.write('\n  ],\n  "traceName": "/t.json"\n}\n')
    return count


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _event(category: str, name: str, pid: int, tid: int, start_ns: int, length_ns: int, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    "ts": {_us(start_ns)}, '
        f'"dur": {_us(length_ns)},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _flow(phase: str, number: int, pid: int, tid: int, start_ns: int) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {_us(start_ns)},\n    "cat": "ac2g", "name": "ac2g"{end}\n  }}'


def _steps(draw: random.Random) -> Iterator[list[str]]:
    """Yield step after step: host ops with frames around them, calls, kernels and the flows between them."""
    host, device, number = 1_428_625_731_896_179, 1_428_625_731_896_179, 1
    for step in itertools.count():
        begin, found = host, []
        for _ in range(200):
            which = draw.randrange(4)
            length = draw.randrange(18_000, 36_000)
            kernel, usual = KERNELS[which]
            work = int(usual * draw.uniform(0.9, 1.1))
            found += _operator(which, number, host, length)
            device = max(device, host + 14_000) + 1_300
            found += _work(kernel, number, host, device, work)
            device, host, number = device + work, host + length + draw.randrange(2_000, 9_000), number + 1
        found.append(
            _event("user_annotation", f"ProfilerStep#{step}", 4242, 4242, begin, host - begin, '"External id": 1')
        )
        yield found


def _operator(which: int, number: int, host: int, length: int) -> list[str]:
    name, shapes = OPERATORS[which], SHAPES[which]
    args = (
        f'"External id": {number},"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": ["c10::BFloat16", '
        f'"c10::BFloat16", "c10::BFloat16"], "Input Strides": [[524288, 1024, 1], [1024, 1], [1]], "Input Dims": {shapes}, "Ev Idx": {number}'
    )
    inner = f'"External id": {number},"Record function id": 0, "Ev Idx": {number}'
    frame = f'"Python parent id": {number % 97}, "Python id": {number}, "Ev Idx": {number}'
    return [
        _event(
            "python_function", f"torch/nn/modules/linear.py({114 + which}): forward", 4242, 4242, host, length, frame
        ),
        _event("cpu_op", name, 4242, 4242, host + 900, length - 1_800, args),
        _event("cpu_op", name + "_inner", 4242, 4242, host + 2_000, length - 4_000, inner),
    ]


def _work(kernel: str, number: int, host: int, device: int, work: int) -> list[str]:
    call = f'"External id": {number}, "cbid": 211, "correlation": {number}'
    args = (
        f'"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number}, "registers per thread": 168, '
        '"shared memory": 231424, "blocks per SM": 0.969697, "warps per SM": 11.636364, "grid": [128, 1, 1], "block": [384, 1, 1], '
        '"est. achieved occupancy %": 18'
    )
    return [
        _event("cuda_runtime", "cudaLaunchKernelExC", 4242, 4242, host + 5_000, 7_000, call),
        _flow("s", number, 4242, 4242, host + 5_000),
        _event("kernel", kernel, 0, 7, device, work, args),
        _flow("f", number, 0, 7, device),
    ]
