"""Programs with causes between host and device: graphs that launch slowly, events, tiny kernels, optimizers, tails."""

# ruff: noqa: E501  # names of kernels are as long as they are

from dataclasses import replace
from math import ceil

from benchmarks._planted_models import Builder
from benchmarks._planted_queues import BYTES_PER_S, FLOP_PER_S, SMS, Op, Program, step_ns


def graphed(ops: list[Op], make: Builder, launch_ns: float) -> list[Op]:
    """Return works as nodes of one graph, launched by one call; gaps between them as the device makes them."""
    first, *rest = [
        replace(op, name="", inner="", api="", python_ns=0, api_ns=0, node=True, gap_ns=make.noisy(900)) for op in ops
    ]
    call = replace(
        first,
        node=False,
        api="cudaGraphLaunch",
        python_ns=make.noisy(25_000),
        api_ns=make.noisy(launch_ns),
        held=True,
        gap_ns=0,
    )
    return [call, *rest]


def slow_graph_launch(seed: int) -> Program:
    make = Builder(seed, tokens=(1024, 2048), widths=(1024, 2048))
    make.layers *= make.rng.randint(3, 6)
    slower = make.rng.uniform(12, 40)

    def step(_: int) -> list[Op]:
        works = [op for _ in range(make.layers) for op in make.layer()]
        usual = 6_000 + 120 * len(works)
        ops = graphed(works, make, usual)
        slow = replace(ops[0], api_ns=int(ops[0].api_ns * slower), cure=ops[0])
        return [*make.distractors(), slow, *ops[1:], *make.ending()]

    return make.program(step)


def dependency(seed: int) -> Program:
    make = Builder(seed, tokens=(256, 1024), widths=(256, 512), python_us=(0.6, 1.0))
    make.call, make.layers = make.rng.uniform(1.2, 1.6) * 1000, make.rng.randint(8, 14)
    usual, late = make.rng.uniform(700, 1000), make.rng.uniform(6000, 11000)

    def step(_: int) -> list[Op]:
        found = make.distractors()
        works = [op for _ in range(make.layers) for op in make.layer()]
        head = make.product(8192, 4096, 4096)  # long enough for the host to get ahead
        found.append(replace(head, label="chain-1"))
        for number, op in enumerate(works):
            one = replace(op, gap_ns=make.noisy(usual), label=f"chain{number}", after=(f"chain{number - 1}",))
            if number % 2 == 0:
                found.append(one)
                continue
            side = replace(one, stream=30, gap_ns=0)
            found += [_wait(make, 30, make.stream), replace(_late(make, side, late), cure=one)]
            found += [_wait(make, make.stream, 30)]
        return [*found, *make.ending()]

    program = make.program(step)
    return replace(program, ops=_delayed(program.ops, make, late))


def _wait(make: Builder, stream: int, other: int) -> Op:
    return Op("", make.noisy(300), "cudaStreamWaitEvent", make.noisy(500), stream=stream, inner=f"{other}", cure=None)


def _late(make: Builder, op: Op, late: float) -> Op:
    return replace(op, delay_ns=make.noisy(late))


def _delayed(ops: list[Op], make: Builder, late: float) -> list[Op]:
    """Return the calls where each first work after an event on the main stream begins late too."""
    found, waiting = [], False
    for op in ops:
        if op.api == "cudaStreamWaitEvent":
            waiting = op.stream == make.stream
        elif waiting and op.device_ns and op.stream == make.stream and op.after:
            waiting, op = False, replace(_late(make, op, late), cure=op)  # noqa: PLW2901
        found.append(op)
    return found


def tiny_kernels(seed: int) -> Program:
    make = Builder(seed, tokens=(64, 512), widths=(256, 512))
    runs, long = make.rng.randint(20, 40), make.rng.randint(5, 9)
    names = ("triton_poi_fused_add_mul", "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda>",
             "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps>>", "void rms_norm_kernel<c10::BFloat16>",
             "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<direct_copy_kernel_cuda>>")  # fmt: skip

    def run() -> list[Op]:
        found = [
            replace(make.op("", make.rng.choice(names), make.rng.uniform(1800, 3600), []), gap_ns=make.noisy(900))
            for _ in range(long)
        ]
        keep = max(range(long), key=lambda i: found[i].device_ns)
        return [op if i == keep else replace(op, cure=None) for i, op in enumerate(found)]

    def step(_: int) -> list[Op]:
        head = make.product(1024, 1024, 1024)
        works = [head, *(op for _ in range(runs) for op in [*run(), make.product(512, 1024, 1024)])]
        first, *rest = graphed(works, make, 6_000 + 120 * len(works))
        cures = [op.cure if op.cure is None else "same" for op in works[1:]]
        return [
            *make.distractors(),
            first,
            *(replace(op, cure=cure) for op, cure in zip(rest, cures, strict=True)),
            *make.ending(),
        ]

    return make.program(step)


def optimizer_unfused(seed: int) -> Program:
    make = Builder(seed, tokens=(2048, 6144), widths=(512, 1024), python_us=(4.0, 7.0))
    name = make.rng.choice(("AdamW", "Adam"))
    steps_of_one = (("aten::mul_", 2), ("aten::lerp_", 3), ("aten::mul_", 2), ("aten::addcmul_", 3), ("aten::sqrt", 2),
                    ("aten::div_", 2), ("aten::add_", 2), ("aten::addcdiv_", 4))  # fmt: skip
    if name == "Adam":
        steps_of_one = steps_of_one[1:]
    d = make.width
    sizes = [
        size for _ in range(make.layers) for size in (3 * d * d, d * d, 4 * d * d, 4 * d * d, d, d, 3 * d, d, 4 * d, d)
    ]
    phase = f"Optimizer.step#{name}.step"

    def update(number: int, size: int) -> list[Op]:
        found = []
        for index, (operator, accesses) in enumerate(steps_of_one):
            ns = accesses * size * 4 / BYTES_PER_S / make.memory_efficiency * 1e9 + 1900
            kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::{operator[6:]}kernel_cuda>"
            op = replace(make.op(operator, kernel, ns, [(size,)], "float", cure=None), phase=phase)
            if index == 0 and number % 36 == 0:
                group = sizes[number : number + 36]
                moved = 7 * sum(group) * 4 / BYTES_PER_S / make.memory_efficiency * 1e9 + 2500
                joined = (
                    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
                )
                op = replace(op, cure=replace(op, kernel=joined, device_ns=make.noisy(moved)))
            found.append(op)
        return found

    def step(_: int) -> list[Op]:
        body = [*make.distractors(), *(op for _ in range(make.layers) for op in make.layer())]
        return [*body, *(op for number, size in enumerate(sizes) for op in update(number, size)), *make.ending()]

    return make.program(step)


def tail_wave(seed: int) -> Program:
    make = Builder(seed, tokens=(4096, 8192), widths=(2048, 4096))
    names = ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
             "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8")  # fmt: skip
    name, depth = make.rng.choice(names), make.rng.choice((4096, 8192))

    def product() -> Op:
        blocks = make.rng.randint(1, 2) * SMS + make.rng.randint(4, 24)
        waves = blocks / SMS
        rows, columns = 128 * 2, 128 * ceil(blocks / 2)
        even = 2 * rows * columns * depth / FLOP_PER_S / make.efficiency * 1e9
        good = make.op("aten::mm", name, even + 1500, [(rows, depth), (depth, columns)], grid=2 * ceil(blocks / 2))
        return replace(good, device_ns=int(good.device_ns * ceil(waves) / waves), cure=good)

    def step(_: int) -> list[Op]:
        plain = make.plain()
        return [
            *plain[:-1],
            *(product() for _ in range(make.rng.randint(16, 24) * make.layers)),
            plain[-1],
            *make.ending(),
        ]

    return make.program(step)


def profiler_inflated(seed: int) -> Program:
    make = Builder(seed, tokens=(2048, 4096), widths=(1024,), python_us=(3.0, 5.0))
    plain = make.program(lambda _: [*make.plain(), *make.ending()])
    slower = make.rng.uniform(6, 12)
    ops = [
        replace(op, python_ns=int(op.python_ns * slower), api_ns=int(op.api_ns * slower), cure="same")
        for op in plain.ops
    ]
    return replace(plain, ops=ops, unprofiled_s=step_ns(plain) * 1e-9)
