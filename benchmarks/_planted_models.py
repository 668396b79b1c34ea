"""The calls of one model with noise: products, norms and pointwise work of layers, an optimizer, what every step has."""

# ruff: noqa: E501  # names of kernels are as long as they are

import random
from collections.abc import Callable
from dataclasses import replace

from benchmarks._planted_queues import BYTES_PER_S, FLOP_PER_S, TF32_FLOP_PER_S, Op, Program


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
