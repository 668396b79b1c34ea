"""Healthy programs, and those whose host holds the device up: launches, waits, loading, copies, allocation."""

# ruff: noqa: E501  # names of kernels are as long as they are

from dataclasses import replace

from benchmarks._planted_models import Builder
from benchmarks._planted_queues import Op, Program


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
