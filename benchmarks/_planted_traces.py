"""Traces of a small host and a small device with two queues between them, with one planted cause or none.

The truth is known by construction: every call knows what it would be without the cause, and the same two queues are run
again with that. Nothing here is shared with the rules that look for causes; only file format and names are those of
PyTorch's profiler.
"""

# ruff: noqa: E501  # names of kernels are as long as they are

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

FLOP_PER_S, FP32_FLOP_PER_S, TF32_FLOP_PER_S, BYTES_PER_S = 989e12, 67e12, 494e12, 3.35e12
"""H100 SXM, as its data sheet says."""
SMS = 132


@dataclass(frozen=True)
class Op:
    """One call of the host: operator, host time, call and device work; `cure` is what it would be without the cause."""

    name: str
    python_ns: int = 0
    api: str = ""
    api_ns: int = 0
    kernel: str = ""
    device_ns: int = 0
    stream: int = 7
    waits: str = ""  # own, device
    after: tuple[str, ...] = ()  # labels of works that must have ended
    label: str = ""
    gap_ns: int = 0
    shapes: tuple = ()
    kinds: tuple = ()
    concrete: tuple = ()
    grid: int = 2048
    size: int = 0
    annotation: str = ""  # a range around the Python time before the call
    region: str = ""  # compiled region that it belongs to
    inner: str = ""  # operator below, whose call it is
    step: int = 0
    cure: "Op | str | None" = "same"


@dataclass
class Program:
    """All steps, and what each trace has for itself."""

    ops: list[Op]
    latency_ns: int
    step_count: int
    rng: random.Random
    clocks: list[tuple[float, float, float]] = field(default_factory=list)  # (part of the trace, MHz, W)
    device: str = "NVIDIA H100 80GB HBM3"
    ranks: int = 0


def cured(program: Program) -> Program:
    """Return the program without its cause."""
    ops = [op if op.cure == "same" else op.cure for op in program.ops]
    return replace(program, ops=[op for op in ops if op is not None])


# -- running


@dataclass
class Ran:
    """One call as it ran."""

    op: Op
    begin: int
    call: int
    done: int
    start: int = 0
    end: int = 0


def run(program: Program) -> tuple[list[Ran], list[int], int]:
    """Return the calls as they ran, when each step began on the host, and the end of all work."""
    host, ready, ends, ran, begins = 1_000_000, {}, {}, [], []
    noise = random.Random(17)
    for op in program.ops:
        while len(begins) <= op.step:
            begins.append(host)
        begin = host
        call = begin + op.python_ns
        done = call + op.api_ns
        one = Ran(op, begin, call, done)
        if op.device_ns:
            earliest = call + program.latency_ns + int(noise.random() * 400) if op.api_ns else 0
            one.start = max(ready.get(op.stream, 0) + op.gap_ns, earliest, *(ends.get(name, 0) for name in op.after), 0)
            one.end = ready[op.stream] = one.start + op.device_ns
            if op.label:
                ends[op.label] = one.end
        if op.waits == "own":
            one.done = max(done, one.end + 1_000)
        elif op.waits == "device":
            one.done = max(done, max(ready.values(), default=0) + 1_500)
        host = one.done
        ran.append(one)
    return ran, begins, max(host, max(ready.values(), default=0))


def step_ns(program: Program) -> float:
    """Return the mean time of the steady steps: the first one is warm-up."""
    _, begins, end = run(program)
    return (end - begins[1]) / (program.step_count - 1)


# -- programs


class Builder:
    """Makes the calls of one model, with noise drawn once for a call, whether the cause is there or not."""

    def __init__(self, seed: int, *, tokens: tuple[int, int] = (4096, 16384), widths: tuple[int, ...] = (1024, 2048, 4096),
                 python_us: tuple[float, float] = (3.0, 6.0)) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.tokens = 64 * self.rng.randint(tokens[0] // 64, tokens[1] // 64)
        self.width = self.rng.choice(widths)
        self.layers = self.rng.randint(3, 6)
        self.step_count = self.rng.randint(5, 8)
        self.efficiency = self.rng.uniform(0.6, 0.78)
        self.memory_efficiency = self.rng.uniform(0.75, 0.92)
        self.python = self.rng.uniform(*python_us) * 1000
        self.call = self.rng.uniform(1.8, 3.2) * 1000
        self.latency = int(self.rng.uniform(3.5, 6.5) * 1000)
        self.stream = self.rng.choice((0, 7, 20))
        self.number = 0

    def noisy(self, ns: float) -> int:
        return max(1, int(ns * self.rng.lognormvariate(0, 0.05)))

    def op(self, name: str, kernel: str, ns: float, shapes: list, kind: str = "c10::BFloat16", **given) -> Op:
        return Op(
            name=name, python_ns=self.noisy(self.python), api="cudaLaunchKernel", api_ns=self.noisy(self.call), kernel=kernel,
            device_ns=self.noisy(ns), stream=given.pop("stream", self.stream), shapes=tuple(map(tuple, shapes)),
            kinds=given.pop("kinds", (kind,) * len(shapes)), **given,
        )  # fmt: skip

    def product(
        self, m: int, n: int, k: int, kind: str = "c10::BFloat16", kernel: str = "", ns: float = 0, **given
    ) -> Op:
        single = kind == "float"
        rate = TF32_FLOP_PER_S if single else FLOP_PER_S
        size = 4 if single else 2
        least = max(
            2 * m * n * k / rate / self.efficiency,
            (m * k + k * n + m * n) * size / BYTES_PER_S / self.memory_efficiency,
        )
        names = ("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
                 "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_tn_align8")  # fmt: skip
        kernel = kernel or (
            "cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4" if single else names[self.number % 3]
        )
        return self.op("aten::mm", kernel, ns or least * 1e9 + 2500, [(m, k), (k, n)], kind, **given)

    def pointwise(self, name: str, kernel: str, elements: tuple, reads: int = 1, size: int = 2, **given) -> Op:
        count = 1
        for extent in elements:
            count *= extent
        ns = count * size * (reads + 1) / BYTES_PER_S / self.memory_efficiency * 1e9 + 2000
        return self.op(name, kernel, given.pop("ns", ns), [elements] * reads, **given)

    def norm(self, **given) -> Op:
        m, d = self.tokens, self.width
        ns = 2 * m * d * 2 / BYTES_PER_S / self.memory_efficiency * 1e9 + 2500
        name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
        shapes = [(m, d), (), (d,), (d,), ()]
        kinds = ("c10::BFloat16", "ScalarList", "c10::BFloat16", "c10::BFloat16", "Scalar")
        return Op(
            name="aten::native_layer_norm", python_ns=self.noisy(self.python), api="cudaLaunchKernel",
            api_ns=self.noisy(self.call), kernel=name, device_ns=self.noisy(given.pop("ns", ns)), stream=self.stream,
            shapes=tuple(shapes), kinds=kinds, concrete=("", f"[{d}]", "", "", "1e-05"), **given,
        )  # fmt: skip

    def gelu(self, wide: int) -> Op:
        kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>"
        one = self.pointwise("aten::gelu", kernel, (self.tokens, wide))
        return replace(one, kinds=("c10::BFloat16", ""), shapes=(*one.shapes, ()), concrete=("", "none"))

    def add(self, size: tuple | None = None) -> Op:
        kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
        one = self.pointwise("aten::add", kernel, size or (self.tokens, self.width), reads=2)
        return replace(one, kinds=(*one.kinds, "Scalar"), shapes=(*one.shapes, ()), concrete=("", "", "1"))

    def layer(self, kind: str = "c10::BFloat16") -> list[Op]:
        m, d = self.tokens, self.width
        self.number += 1
        products = [self.product(m, 3 * d, d, kind), self.product(m, d, d, kind), self.product(m, 4 * d, d, kind),
                    self.product(m, d, 4 * d, kind)]  # fmt: skip
        return [
            self.norm(),
            *products[:2],
            self.add(),
            self.norm(),
            products[2],
            self.gelu(4 * d),
            products[3],
            self.add(),
        ]

    def optimizer(self) -> Op:
        name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
        size = 12 * self.width * self.width * self.layers
        return Op(
            name="aten::_fused_adamw_", python_ns=self.noisy(self.python * 3), api="cudaLaunchKernel", api_ns=self.noisy(self.call),
            kernel=name, device_ns=self.noisy(size * 12 / BYTES_PER_S / 0.8 * 1e9), stream=self.stream,
        )  # fmt: skip

    def ending(self) -> list[Op]:
        """Return the read of the loss that ends each step, beside small things that every step has."""
        copy = Op("aten::item", self.noisy(3000), "cudaMemcpyAsync", self.noisy(6000), "Memcpy DtoH (Device -> Pageable)",
                  self.noisy(1400), self.stream, size=4, inner="aten::_local_scalar_dense")  # fmt: skip
        wait = Op("", 500, "cudaStreamSynchronize", 1000, waits="device", stream=self.stream)
        return [copy, wait]

    def distractors(self) -> list[Op]:
        copy = Op("aten::to", self.noisy(5000), "cudaMemcpyAsync", self.noisy(7000), "Memcpy HtoD (Pinned -> Device)",
                  self.noisy(2500), self.stream, size=32768)  # fmt: skip
        made = Op(
            "aten::zeros",
            self.noisy(4000),
            "cudaMemsetAsync",
            self.noisy(2500),
            "Memset (Device)",
            self.noisy(1500),
            self.stream,
            size=4096,
        )
        name = "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda>"
        cast = self.op("aten::_to_copy", name, 2600, [(64, self.width)], "float")
        return [
            copy,
            made,
            replace(
                cast,
                concrete=("", "15", "", "", "", "False", ""),
                kinds=("float", *("Scalar",) * 6),
                shapes=(*cast.shapes, *((),) * 6),
            ),
        ]

    def program(self, step: Callable[[int], list[Op]], **given) -> Program:
        first = step(0)
        stall = int(1.2 * sum(op.device_ns + op.python_ns for op in first))  # what first steps do: tuning, lazy loading
        ops: list[Op] = [Op("", stall)]
        for number in range(self.step_count):
            for op in step(number):
                slower = 3 if number == 0 else 1
                ops.append(at_step(op, number, slower))
        return Program(ops=ops, latency_ns=self.latency, step_count=self.step_count, rng=self.rng, **given)

    def plain(self, kind: str = "c10::BFloat16") -> list[Op]:
        return [*self.distractors(), *(op for _ in range(self.layers) for op in self.layer(kind)), self.optimizer()]


def at_step(op: Op, number: int, slower: int) -> Op:
    cure = op.cure
    if isinstance(cure, Op):
        cure = at_step(cure, number, slower)
    names = {name: f"{name}@{number}" for name in (*op.after, op.label) if name}
    return replace(op, step=number, python_ns=op.python_ns * slower, cure=cure, label=names.get(op.label, ""),
                   after=tuple(names[name] for name in op.after))  # fmt: skip


# -- causes


def healthy(seed: int) -> Program:
    make = Builder(seed)
    return make.program(lambda _: [*make.plain(), *make.ending()])


def launch_bound(seed: int) -> Program:
    make = Builder(seed, tokens=(64, 256), widths=(256, 512), python_us=(8.0, 22.0))

    def step(_: int) -> list[Op]:
        ops = make.plain()
        gap = make.rng.uniform(0.9, 1.6) * 1000
        first = replace(ops[0], python_ns=10_000, api_ns=500)
        return [
            replace(op, cure=replace(first if i == 0 else replace(op, python_ns=0, api_ns=0), gap_ns=int(gap)))
            for i, op in enumerate(ops)
        ] + make.ending()

    return make.program(step)


def host_sync(seed: int) -> Program:
    make = Builder(seed, tokens=(1024, 2560), widths=(1024,), python_us=(3.0, 5.0))

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for _ in range(make.layers):
            ops = make.layer()
            found += ops[:4] + read(make) + ops[4:] + read(make)
        return [*found, make.optimizer(), *make.ending()]

    return make.program(step)


def read(make: Builder) -> list[Op]:
    copy, _ = make.ending()
    wait = Op("", make.noisy(2000), "cudaStreamSynchronize", 1000, waits="device", stream=make.stream)
    return [replace(copy, cure=None), replace(wait, cure=None)]


def data_loading(seed: int) -> Program:
    make = Builder(seed)
    device = sum(op.device_ns for op in make.plain())
    part = make.rng.uniform(0.25, 1.2)

    def step(_: int) -> list[Op]:
        spent = make.noisy(device * part)
        load = Op("", spent, annotation="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", cure=None)
        return [load, *make.plain(), *make.ending()]

    return make.program(step)


def pageable_copy(seed: int) -> Program:
    make = Builder(seed)
    device = sum(op.device_ns for op in make.plain())
    rate, pinned = make.rng.uniform(4, 8), make.rng.uniform(20, 26)
    size = int(device * make.rng.uniform(0.25, 0.9) * rate)

    def step(_: int) -> list[Op]:
        fast = Op("aten::to", make.noisy(6000), "cudaMemcpyAsync", make.noisy(7000), "Memcpy HtoD (Pinned -> Device)",
                  make.noisy(size / pinned), 13, size=size, inner="aten::copy_")  # fmt: skip
        slow = replace(fast, kernel="Memcpy HtoD (Pageable -> Device)", device_ns=make.noisy(size / rate), stream=make.stream,
                       waits="own", cure=fast)  # fmt: skip
        return [slow, *make.plain(), *make.ending()]

    return make.program(step)


def exposed_copy(seed: int) -> Program:
    make = Builder(seed)
    device = sum(op.device_ns for op in make.plain())
    rate = make.rng.uniform(20, 26)
    size = int(device * make.rng.uniform(0.2, 0.7) * rate)

    def step(_: int) -> list[Op]:
        slow = Op("aten::to", make.noisy(6000), "cudaMemcpyAsync", make.noisy(7000), "Memcpy HtoD (Pinned -> Device)",
                  make.noisy(size / rate), make.stream, size=size, inner="aten::copy_")  # fmt: skip
        return [replace(slow, cure=replace(slow, stream=13)), *make.plain(), *make.ending()]

    return make.program(step)


def tensor_core_unused(seed: int) -> Program:
    make = Builder(seed)
    sgemm = make.rng.choice(("ampere_sgemm_128x128_tn", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4",
                             "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_tn_align1>"))  # fmt: skip
    slow = make.rng.uniform(0.65, 0.85)

    def change(op: Op) -> Op:
        if op.name != "aten::mm":
            return op
        (m, k), (_, n) = op.shapes
        return replace(op, kernel=sgemm, device_ns=make.noisy(2 * m * n * k / FP32_FLOP_PER_S / slow * 1e9), cure=op)

    return make.program(lambda _: [*map(change, make.plain("float")), *make.ending()])


def tf32_baseline(seed: int) -> Program:
    make = Builder(seed)
    return make.program(lambda _: [*make.plain("float"), *make.ending()])


def bad_alignment(seed: int) -> Program:
    make = Builder(seed, tokens=(4096, 8192), widths=(1024, 2048))
    words = 2 * make.rng.randint(15000, 30000) + 1
    slower = make.rng.uniform(2.5, 6)

    def step(_: int) -> list[Op]:
        good = make.product(make.tokens, -(-words // 64) * 64, make.width)
        name = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_tn_align1"
        bad = replace(good, kernel=name, device_ns=make.noisy(good.device_ns * slower),
                      shapes=((make.tokens, make.width), (make.width, words)), cure=good)  # fmt: skip
        return [*make.plain()[:-1], bad, make.optimizer(), *make.ending()]

    return make.program(step)


def layout_transpose(seed: int) -> Program:
    make = Builder(seed)
    images, part = 64 * make.rng.randint(1, 3), make.rng.uniform(0.9, 1.6)

    def conv(channels: int, extent: int) -> list[Op]:
        flop = 2 * images * channels * channels * 9 * extent * extent
        size = images * channels * extent * extent
        shapes = [(images, channels, extent, extent), (channels, channels, 3, 3), (), (), (), (), (), (), ()]
        kinds = (
            "c10::BFloat16",
            "c10::BFloat16",
            "",
            "ScalarList",
            "ScalarList",
            "ScalarList",
            "Scalar",
            "ScalarList",
            "Scalar",
        )
        name = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16"
        main = make.op("aten::convolution", name, flop / FLOP_PER_S / 0.5 * 1e9 + 3000, shapes, kinds=kinds, inner="aten::cudnn_convolution",
                       concrete=("", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"))  # fmt: skip
        moved = size * 4 / BYTES_PER_S / 0.5 * 1e9 * part + 2000
        turn = [
            replace(main, kernel=f"void cudnn::ops::{way}Kernel<__nv_bfloat16, __nv_bfloat16, float, false, true>",
                    device_ns=make.noisy(moved), python_ns=make.noisy(800), cure=None)
            for way in ("nchwToNhwc", "nhwcToNchw")
        ]  # fmt: skip
        name = "void at::native::vectorized_elementwise_kernel<4, at::native::launch_clamp_scalar relu>"
        relu = make.pointwise("aten::relu", name, (images, channels, extent, extent))
        return [turn[0], main, turn[1], relu]

    def step(_: int) -> list[Op]:
        sizes = ((64, 56), (128, 28), (256, 28), (512, 14))
        return [
            *make.distractors(),
            *(op for one in sizes for op in conv(*one) + conv(*one)),
            make.optimizer(),
            *make.ending(),
        ]

    return make.program(step)


def small_kernels(seed: int) -> Program:
    make = Builder(seed, tokens=(8192, 16384), widths=(1024, 2048))
    names = ("aten::mul", "aten::sigmoid", "aten::tanh", "aten::neg", "aten::exp", "aten::relu")
    long = make.rng.randint(6, 12)

    def chain() -> list[Op]:
        size = (make.tokens, make.width)
        found = []
        for index in range(long):
            name = names[index % len(names)]
            kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::{name[6:]}_kernel_cuda>"
            one = make.pointwise(name, kernel, size, reads=2 if name == "aten::mul" else 1)
            found.append(one)
        keep = max(range(long), key=lambda i: found[i].device_ns)
        return [one if i == keep else replace(one, cure=None) for i, one in enumerate(found)]

    def step(_: int) -> list[Op]:
        return [
            *make.distractors(),
            *(op for _ in range(make.layers) for op in [*make.layer(), make.norm(), *chain()]),
            make.optimizer(),
            *make.ending(),
        ]

    return make.program(step)


def exposed_comm(seed: int) -> Program:
    make = Builder(seed)
    part = make.rng.uniform(0.3, 0.9)

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for number in range(make.layers):
            ops = make.layer()
            ops[-1] = replace(ops[-1], label=f"layer{number}")
            spent = part * sum(op.device_ns for op in ops)
            talk = Op("record_param_comms", make.noisy(make.python), "cudaLaunchKernelExC", make.noisy(make.call),
                      "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", make.noisy(spent), make.stream,
                      grid=24, label=f"talk{number}")  # fmt: skip
            found += [*ops, replace(talk, cure=replace(talk, stream=21, after=(f"layer{number}",)))]
        last = make.optimizer()
        return [*found, replace(last, cure=replace(last, after=(f"talk{make.layers - 1}",))), *make.ending()]

    return make.program(step, ranks=8)


def overlap_missed(seed: int) -> Program:
    make = Builder(seed)
    pairs = make.rng.randint(8, 16)
    sizes = make.rng.uniform(60, 200), make.rng.uniform(60, 200)

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for number in range(pairs):
            for side in (0, 1):
                other = 1 - side
                behind = f"side{other}.{number - 1 if side == 0 else number}"
                one = make.op("tower::scan", "selective_scan_fwd_kernel", sizes[side] * 1000, [(8, 4096), (8, 4096)],
                              grid=make.rng.randint(8, 40), stream=20 + side, label=f"side{side}.{number}")  # fmt: skip
                if number or side:
                    wait = Op(
                        "",
                        make.noisy(1500),
                        "cudaStreamWaitEvent",
                        900,
                        stream=20 + side,
                        cure=None,
                        after=(behind,),
                        label="",
                    )
                    found += [replace(wait, after=(), inner=f"{20 + other}"), replace(one, after=(behind,), cure=one)]
                else:
                    found.append(one)
        return [*found, *make.ending()]

    return make.program(step)


def throttle(seed: int) -> Program:
    make = Builder(seed)
    fallen, begin = make.rng.uniform(0.6, 0.85), make.rng.uniform(0.0, 0.5)
    program = make.program(lambda _: [*make.plain(), *make.ending()])
    first = int(begin * make.step_count) + 1
    ops = [
        replace(op, device_ns=int(op.device_ns / fallen), cure=op) if op.step >= first and op.kernel and op.name != "aten::item" else op
        for op in program.ops
    ]  # fmt: skip
    clock = make.rng.choice((1980.0, 1830.0, 1755.0))
    return replace(program, ops=ops, clocks=[(0, clock, 560.0), (first, clock * fallen, 699.0)])


def below_prediction(seed: int) -> Program:
    make = Builder(seed, tokens=(4096, 8192), widths=(2048, 4096))
    name = make.rng.choice(("aten::native_layer_norm", "aten::gelu", "aten::mm"))
    slower = {"aten::native_layer_norm": make.rng.uniform(8, 14), "aten::gelu": make.rng.uniform(5, 9)}.get(
        name, make.rng.uniform(3.5, 6)
    )
    wide = 4 * make.width

    def change(op: Op) -> Op:
        chosen = op.name == name and (name != "aten::mm" or op.shapes[1][1] == wide)
        return replace(op, device_ns=int(op.device_ns * slower), cure=op) if chosen else op

    return make.program(lambda _: [*map(change, make.plain()), *make.ending()])


def cast_storm(seed: int) -> Program:
    make = Builder(seed, tokens=(512, 1024), widths=(4096,), python_us=(2.5, 3.5))
    name = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, LoadWithCast<1>, StoreWithCast<1>>"

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for _ in range(make.layers):
            for op in make.layer():
                if op.name == "aten::mm":
                    shape = op.shapes[1]
                    ns = shape[0] * shape[1] * 6 / BYTES_PER_S / make.memory_efficiency * 1e9 + 2000
                    cast = make.op("aten::_to_copy", name, ns, [shape, *((),) * 6], kinds=("float", *("Scalar",) * 6),
                                   concrete=("", "15", "", "", "", "False", ""))  # fmt: skip
                    found.append(replace(cast, cure=None))
                found.append(op)
        return [*found, make.optimizer(), *make.ending()]

    return make.program(step)


def tensor_creation(seed: int) -> Program:
    make = Builder(seed, tokens=(1024, 2048), widths=(1024,), python_us=(2.5, 4.0))
    device = sum(op.device_ns for op in make.plain())
    each = device * make.rng.uniform(0.9, 2.0) / (make.layers * 4)
    names = ("aten::lift_fresh", "aten::full", "aten::zeros", "aten::arange")

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for _ in range(make.layers):
            ops = make.layer()
            for index, op in enumerate(ops):
                if index % 2 == 0 and index < 8:
                    found.append(Op(names[index // 2], make.noisy(each), annotation="op", cure=None))
                found.append(op)
        return [*found, make.optimizer(), *make.ending()]

    return make.program(step)


def graph_breaks(seed: int) -> Program:
    make = Builder(seed, tokens=(1024, 3072), widths=(1024,), python_us=(2.0, 3.0))
    device = sum(op.device_ns for op in make.plain())
    each = device * make.rng.uniform(0.7, 1.6) / make.layers

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for number in range(make.layers):
            if number:
                found.append(Op("", make.noisy(each), annotation="", cure=None))
            found += [replace(op, region=f"Torch-Compiled Region: {number}/0") for op in make.layer()]
        return [*found, make.optimizer(), *make.ending()]

    return make.program(step)


def allocation(seed: int) -> Program:
    make = Builder(seed)
    device = sum(op.device_ns for op in make.plain())
    each = device * make.rng.uniform(0.12, 0.3) / make.layers

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for _ in range(make.layers):
            found += make.layer()
            for name in ("cudaFree", "cudaMalloc"):
                found.append(
                    Op(
                        "",
                        make.noisy(2000),
                        name,
                        make.noisy(each),
                        waits="device" if name == "cudaFree" else "",
                        cure=None,
                    )
                )
        return [*found, make.optimizer(), *make.ending()]

    return make.program(step)


CAUSES: dict[str, tuple[Callable[[int], Program], str, tuple[str, ...]]] = {
    "launch_bound": (launch_bound, "idle.launch_bound", ("calls",)),
    "host_sync": (host_sync, "idle.sync_bound", ("calls",)),
    "data_loading": (data_loading, "idle.input_bound", ("ranges",)),
    "pageable_copy": (pageable_copy, "copy.pageable_h2d", ("memory",)),
    "exposed_copy": (exposed_copy, "copy.exposed", ("bytes",)),
    "tensor_core_unused": (tensor_core_unused, "gemm.no_tensor_core", ("names",)),
    "tf32_baseline": (tf32_baseline, "amp.tf32_baseline", ("shapes",)),
    "bad_alignment": (bad_alignment, "gemm.bad_alignment", ("shapes",)),
    "layout_transpose": (layout_transpose, "layout.transpose", ("names",)),
    "small_kernels": (small_kernels, "elementwise.unfused", ("shapes",)),
    "exposed_comm": (exposed_comm, "comm.exposed", ("correlations",)),
    "overlap_missed": (overlap_missed, "overlap.missed", ("grids",)),
    "throttle": (throttle, "power.throttle", ("clocks",)),
    "below_prediction": (below_prediction, "kernel.below_roofline", ("shapes",)),
    "cast_storm": (cast_storm, "amp.casts", ("names",)),
    "tensor_creation": (tensor_creation, "host.constant_rebuild", ("calls",)),
    "graph_breaks": (graph_breaks, "graph.breaks", ("ranges",)),
    "allocation": (allocation, "idle.alloc", ("calls",)),
}
"""Each cause: its program, the finding expected first, and the evidence whose absence makes it abstain."""


# -- files


def kineto(program: Program, without: tuple[str, ...] = ()) -> dict:
    """Return the trace as PyTorch's profiler writes it, with some kinds of evidence left out."""
    ran, begins, end = run(program)
    events = list(_events(program, ran, without))
    edges = [*begins, max(end, ran[-1].done)]
    for number, (begin, stop) in enumerate(pairwise(edges)):
        events.append(
            _event("user_annotation", f"ProfilerStep#{number + 3}", begin, min(stop, ran_end(ran, number)), tid=1)
        )
    program.rng.shuffle(events)
    properties = {
        "id": 0,
        "name": program.device,
        "numSms": SMS,
        "totalGlobalMem": 85_000_000_000,
        "computeMajor": 9,
        "computeMinor": 0,
    }
    whole = {"schemaVersion": 1, "deviceProperties": [properties], "displayTimeUnit": "ms", "baseTimeNanoseconds": 0,
             "record_shapes": 1, "traceEvents": events}  # fmt: skip
    if program.ranks:
        whole["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": program.ranks}
    return whole


def ran_end(ran: list[Ran], number: int) -> int:
    return max(one.done for one in ran if one.op.step == number)


def _event(cat: str, name: str, begin: int, end: int, tid: int = 1, pid: int = 4242, **args) -> dict:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "args": args,
    }


def _events(program: Program, ran: list[Ran], without: tuple[str, ...]) -> Iterator[dict]:
    regions: dict[tuple[int, str], list[int]] = {}
    for number, one in enumerate(ran):
        op, corr = one.op, number + 100
        if op.region:
            regions.setdefault((op.step, op.region), []).extend((one.begin, one.done))
        if op.annotation and op.annotation != "op" and "ranges" not in without:
            yield _event("user_annotation", op.annotation, one.begin, one.call)
        if op.name:
            yield _operator(op, op.name, one.begin, one.done + 300 if op.api else one.done, number, without)
            if op.inner:
                yield _operator(
                    op,
                    op.inner,
                    one.call - 200 if op.python_ns > 400 else one.call,
                    one.done + 100,
                    number,
                    ("shapes",),
                )
        if op.api and "calls" not in without:
            args = {} if "correlations" in without else {"correlation": corr}
            yield _event("cuda_runtime", op.api, one.call, one.done, **args)
        if op.device_ns:
            yield _work(one, corr, without)
        if op.api == "cudaStreamWaitEvent" and "calls" not in without:
            yield _event("cuda_sync", "Stream Wait Event", one.call, one.call, pid=0, tid=op.stream, device=0, stream=op.stream,
                         correlation=corr, wait_on_stream=int(op.inner or 0))  # fmt: skip
    if "ranges" not in without:
        for (_, name), times in regions.items():
            yield _event("user_annotation", name, min(times), max(times))
    if "clocks" not in without:
        yield from _clocks(program, ran)


def _operator(op: Op, name: str, begin: int, end: int, number: int, without: tuple[str, ...]) -> dict:
    args: dict = {"External id": number}
    if "shapes" not in without and op.kinds:
        args |= {"Input Dims": [list(shape) for shape in op.shapes], "Input type": list(op.kinds)}
        args |= {"Concrete Inputs": list(op.concrete or ("",) * len(op.kinds))}
    return _event("cpu_op", name, begin, end, **args)


def _work(one: Ran, corr: int, without: tuple[str, ...]) -> dict:
    op, name = one.op, one.op.kernel
    args: dict = {"device": 0, "stream": op.stream, "correlation": corr}
    if "names" in without and not name.startswith("Mem"):
        name = "kernel"
    if "memory" in without:
        name = name.split(" (")[0]
    if name.startswith("Memcpy"):
        args |= {} if "bytes" in without else {"bytes": op.size}
        return _event("gpu_memcpy", name, one.start, one.end, pid=0, tid=op.stream, **args)
    if name.startswith("Memset"):
        args |= {} if "bytes" in without else {"bytes": op.size}
        return _event("gpu_memset", name, one.start, one.end, pid=0, tid=op.stream, **args)
    args |= {} if "grids" in without else {"grid": [op.grid, 1, 1], "block": [256, 1, 1]}
    return _event("kernel", name, one.start, one.end, pid=0, tid=op.stream, **args)


def _clocks(program: Program, ran: list[Ran]) -> Iterator[dict]:
    levels = program.clocks or [(0, 1980.0, 600.0)]
    noise = random.Random(5)
    steps = sorted({one.op.step for one in ran})
    for step in steps:
        works = [one for one in ran if one.op.step == step and one.op.device_ns]
        begin, end = min(one.start for one in works), max(one.end for one in works)
        _, clock, power = next(level for level in reversed(levels) if level[0] <= step)
        for part in range(8):
            at = begin + (end - begin) * part // 8
            args = {
                "SM clock (MHz)": round(clock * noise.uniform(0.997, 1.0), 1),
                "power (W)": round(power * noise.uniform(0.98, 1.0), 1),
            }
            yield {"ph": "C", "name": "GPU 0", "pid": 0, "tid": 0, "ts": at / 1000, "args": args}


def write(program: Program, path: Path, without: tuple[str, ...] = ()) -> Path:
    """Write the trace to a file and return its path."""
    path.write_text(json.dumps(kineto(program, without)), encoding="utf-8")
    return path
