"""Programs whose device does what it need not: wrong units, extents, layouts, streams, clocks and casts."""

# ruff: noqa: E501  # names of kernels are as long as they are

from dataclasses import replace

from benchmarks._planted_models import Builder
from benchmarks._planted_queues import BYTES_PER_S, FLOP_PER_S, FP32_FLOP_PER_S, Op, Program


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
