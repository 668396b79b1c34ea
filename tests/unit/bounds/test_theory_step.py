"""Whole steps: dead code, shared storages, lifetimes, module patterns."""

import dataclasses

import pytest

import nearpeak
from nearpeak.bounds.step.compulsory_work import compulsory, live_calls, repeated_calls, touched_work
from nearpeak.bounds.step.liveness import occupancy_of
from nearpeak.core.work.distinct_calls import distinct_calls, module_pattern, touched_bytes
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Buffer, Call, Use, Workload

KINDS = ("weight", "input", "activation", "activation", "output")


def use(number, size=100, start=0):
    return Use(buffer=number, bytes=size, start_bytes=start, stop_bytes=start + size)


def workload(*calls, kinds=KINDS, size=100):
    return Workload(name="w", step="forward", calls=calls, buffers=tuple(Buffer(bytes=size, kind=k) for k in kinds))


CASE = nearpeak.case("gemm", m=1, n=1, k=1, dtype="bf16")


def call(reads, writes, phase="forward", case=CASE):
    return Call(case=case, operator="x", phase=phase, reads=tuple(reads), writes=tuple(writes))


def test_intermediates_cost_nothing_and_inputs_count_once():
    step = workload(call([use(0), use(1)], [use(2)]), call([use(2), use(1)], [use(4)]))
    work = compulsory(step, [Work(read_bytes=200), Work(read_bytes=200)])
    assert (work.read_bytes, work.write_bytes) == (200, 100)


def test_calls_whose_results_nobody_uses_are_left_out():
    step = workload(call([use(0)], [use(3)]), call([use(1)], [use(4)]))
    found = compulsory(step, [Work(flop={"matrix.bf16": 7}), Work(flop={"matrix.bf16": 5})])
    assert found.flop == {"matrix.bf16": 5}
    assert found.read_bytes == 100


def test_two_halves_of_a_weight_count_as_one_whole():
    step = workload(call([use(0, 50), use(0, 50, 50)], [use(4)]))
    assert compulsory(step, [Work()]).read_bytes == 100


def test_recomputed_products_are_not_compulsory():
    step = workload(call([use(0)], [use(4)]))
    work = Work(flop={"matrix.bf16": 10}, recompute_flop={"matrix.bf16": 2})
    assert compulsory(step, [work]).flop == {"matrix.bf16": 8}


def test_a_call_without_a_rule_adds_no_bytes():
    step = workload(call([use(0)], [use(4)], case=None))
    assert compulsory(step, [None]).read_bytes == 0


def test_a_cache_is_read_but_for_the_row_that_the_step_wrote():
    calls = (call([use(1, 10)], [use(0, 10)]), call([use(0, 100)], [use(2)]))
    work = compulsory(workload(*calls, kinds=("kv_cache", "input", "output")), [Work(), Work()])
    assert work.read_bytes == 10 + 90


def test_what_is_overwritten_before_anyone_reads_it_is_dead():
    step = workload(call([use(0)], [use(4)]), call([use(1)], [use(4)]))
    assert live_calls(step) == [False, True]


def test_a_call_without_storages_belongs_to_the_one_before_it():
    step = workload(call([use(0)], [use(3)]), call([], []), call([use(1)], [use(4)]), call([], []))
    assert live_calls(step) == [False, False, True, True]


def test_only_the_returned_part_of_an_output_is_written():
    step = workload(call([use(0)], [use(4)]))
    last = dataclasses.replace(step.buffers[4], kept_bytes=10)
    part = dataclasses.replace(step, buffers=(*step.buffers[:4], last))
    assert (compulsory(step, [Work()]).write_bytes, compulsory(part, [Work()]).write_bytes) == (100, 10)


def test_what_checkpointing_computes_again_counts_once():
    forward = (call([use(0), use(1)], [use(2)]), call([use(2)], [use(3)]))
    again = (call([use(0), use(1)], [use(5)], "backward"), call([use(5)], [use(6)], "backward"))
    last = call([use(3), use(6)], [use(4)], "backward")
    step = workload(*forward, *again, last, kinds=(*KINDS, "activation", "activation"))
    assert repeated_calls(step) == [False, False, True, True, False]
    assert compulsory(step, [Work(flop={"matrix.bf16": 1})] * 5).flop == {"matrix.bf16": 3}


def test_a_storage_named_twice_is_read_once():
    twice = call([use(0), use(0)], [use(4)])
    touched = touched_bytes(twice.reads), touched_bytes(twice.writes)
    once = touched_work(*touched, Work(read_bytes=200, write_bytes=100))
    assert (once.read_bytes, once.write_bytes) == (100, 100)
    whole = Work(read_bytes=200, write_bytes=100)
    assert touched_work(touched_bytes(()), touched_bytes(()), whole) is whole


def test_calls_that_differ_by_their_layer_alone_are_counted_together_and_others_are_not():
    calls = [dataclasses.replace(call([use(0)], [use(1)]), module=f"layers.{n}.mlp") for n in range(3)]
    other = dataclasses.replace(calls[0], reads=(use(0), use(2)), call_count=5)
    found = distinct_calls((*calls, other, dataclasses.replace(other, case=None)))
    assert [(one.module, one.call_count, one.read_bytes) for one in found] == [
        ("layers.*.mlp", 3, 100), ("layers.*.mlp", 5, 200),
    ]  # fmt: skip


def test_generated_constants_need_not_be_read():
    step = workload(call([use(0)], [use(1)]), kinds=("constant", "output"))
    assert compulsory(step, [Work()]).read_bytes == 0


def test_a_storage_lives_from_first_write_to_last_use():
    calls = (call([use(1)], [use(2)]), call([use(2)], [use(3)]), call([use(3)], [use(4)]))
    memory = occupancy_of(workload(*calls)).use
    assert memory.activation_peak_bytes == 200
    assert memory.peak_bytes == 200 + 200


def test_gradients_are_what_the_backward_pass_hands_to_the_optimizer():
    calls = (call([use(1)], [use(2)], "backward"), call([use(2)], [use(0)], "optimizer"))
    assert occupancy_of(workload(*calls, kinds=("weight", "input", "activation"))).use.gradient_bytes == 100


@pytest.mark.parametrize(
    ("path", "pattern"),
    [("layers.0.mlp", "layers.*.mlp"), ("layer1.0.conv2", "layer1.*.conv2"), ("", "(top level)"), ("h.11", "h.*")],
)
def test_layer_numbers_become_stars(path, pattern):
    assert module_pattern(path) == pattern
