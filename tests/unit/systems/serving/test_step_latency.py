"""Step times: parts of a step, padding to graphs, host time, interpolation."""

from dataclasses import replace

import numpy as np
import pytest

from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.transformer_models import shape_of
from nearpeak.ops import work_of
from nearpeak.systems.serving.engine_costs import EngineCosts, engine_costs, engine_names, engine_text
from nearpeak.systems.serving.step_calls import Rank, decode_calls, prompt_calls, row_calls, token_calls
from nearpeak.systems.serving.step_latency import FAMILIES, StepTable

COSTS = EngineCosts(name="none", title="", host_step_s=0.0, host_sequence_s=0.0, host_call_s=0.0, source="")
LLAMA = shape_of("llama-3.1-8b")


def each_takes(seconds):
    return lambda cases: np.full((len(cases), 3), seconds)


def by_bytes(cases):
    times = np.array([(work_of(case).read_bytes + work_of(case).write_bytes) / 1e12 for case in cases])
    return np.stack([times, 0.9 * times, 1.1 * times], axis=1)


def table_of(costs=COSTS, layout=None, times=by_bytes, shape=LLAMA):
    return StepTable(Rank(shape, layout or ServingLayout(), costs), times)


def test_a_decode_step_reads_the_weights_once():
    step = table_of().seconds(StepBatch.of_decode(1, kv_count=16))
    weights = 2 * (8.03e9 - LLAMA.vocabulary * LLAMA.hidden)  # of the embedding, one row
    assert step.time_s == pytest.approx(weights / 1e12, rel=0.01)
    assert step.low_s < step.time_s < step.high_s


def test_batches_are_padded_to_captured_sizes():
    table = table_of(replace(COSTS, graph_sizes=(8, 16)))
    nine, sixteen = (table(StepBatch.of_decode(count, kv_count=1600)) for count in (9, 16))
    assert table.rank.costs.padded(9) == 16
    assert nine == pytest.approx(sixteen, rel=0.02)
    assert not table.rank.costs.has_graph(17)


def test_ranks_that_attend_apart_have_graphs_of_their_own():
    costs = replace(COSTS, host_call_s=1e-3, graph_sizes=(2, 4))
    table = table_of(costs, ServingLayout(tp=4, attention_dp=4))
    nine, twelve = (table.parts_s(StepBatch.of_decode(count, kv_count=16 * count)) for count in (9, 12))
    assert nine[0, 0] == pytest.approx(twelve[0, 0], rel=1e-3), (
        "products: three of the fullest rank run as four on each"
    )
    assert table(StepBatch.of_decode(16, kv_count=256)) < table.kernel_count * 1e-3
    assert table(StepBatch.of_decode(17, kv_count=272)) >= table.kernel_count * 1e-3


def test_a_step_without_a_graph_takes_at_least_its_launches():
    costs = replace(COSTS, host_call_s=1e-3)
    table = table_of(costs)
    assert table(StepBatch.of_decode(1, kv_count=16)) == pytest.approx(table.kernel_count * 1e-3)
    graphs = table_of(replace(costs, graph_sizes=(1, 2)))
    assert graphs(StepBatch.of_decode(1, kv_count=16)) < 0.1
    assert graphs(StepBatch.of_prompt(16)) >= graphs.kernel_count * 1e-3


def test_host_time_adds_for_each_step_sequence_and_prompt():
    bare, slow = table_of(), table_of(replace(COSTS, host_step_s=1e-3, host_sequence_s=1e-4, host_prompt_s=1e-2))
    decode, prompt = StepBatch.of_decode(4, kv_count=400), StepBatch.of_prompt(64)
    assert slow(decode) - bare(decode) == pytest.approx(1.4e-3)
    assert slow(prompt) - bare(prompt) == pytest.approx(11.1e-3)


def test_host_time_of_prompts_hides_behind_kernels_as_far_as_it_lies_between_launches():
    """Half of 10 ms hides under a step that the device bounds, and adds where launches do."""
    prompt, half = StepBatch.of_prompt(64), {"host_prompt_s": 1e-2, "hidden_prompt_ratio": 0.5}
    bare, hidden = table_of(), table_of(replace(COSTS, **half))
    assert hidden(prompt) == pytest.approx(bare(prompt) + 5e-3)
    launched, both = (table_of(replace(COSTS, host_call_s=1e-3, **more)) for more in ({}, half))
    assert both(prompt) == pytest.approx(launched(prompt) + 1e-2)


def test_products_of_an_older_library_take_longer_and_nothing_else():
    batch = StepBatch.of_decode(4, kv_count=400)
    plain = table_of().parts_s(batch)
    older = StepTable(Rank(LLAMA, ServingLayout(), COSTS), by_bytes, 1.5).parts_s(batch)
    assert older[0] == pytest.approx(1.5 * plain[0])
    assert older[1:] == pytest.approx(plain[1:])


def test_an_architecture_that_an_engine_was_not_tuned_for_is_slower_and_less_sure():
    costs = replace(COSTS, host_step_s=1e-3, composition_ratio=1.2, host_ratio=(("cdna3", 2.0),),
                    spread_ratio=(("cdna3", 2.2),))  # fmt: skip
    assert costs.beside("cdna3").host_step_s == pytest.approx(2e-3)
    assert costs.beside("cdna3").composition_ratio == pytest.approx(2.2)
    assert costs.beside("hopper").composition_ratio == pytest.approx(1.2)


def test_a_mixed_step_has_one_product_over_all_tokens():
    table = table_of()
    decode, prompt = StepBatch.of_decode(8, kv_count=800), StepBatch.of_prompt(100)
    mixed = prompt._replace(decode_tokens=8, decode_sequences=8, decode_kv=800, longest_kv=100)
    weights = table.token_s(1)[0, 0]
    assert table(mixed) < table(decode) + table(prompt) - 0.9 * weights


def test_knots_interpolate_between_predicted_sizes():
    table = table_of()
    exact = sum(call.times * by_bytes([call.case])[0, 0] for call in token_calls(table.rank, 1000))
    assert table.token_s(1000)[:, 0].sum() == pytest.approx(exact, rel=5e-3)
    exact = sum(call.times * by_bytes([call.case])[0, 0] for call in decode_calls(table.rank, 20, 20 * 900))
    assert table.decode_s(20, 900)[:, 0].sum() == pytest.approx(exact, rel=2e-2)


def test_the_longest_cache_bounds_decode_attention():
    table = table_of(times=by_bytes)
    even = StepBatch.of_decode(4, kv_count=4000)
    assert table(even._replace(longest_kv=100_000)) > table(even)


def test_tensor_parallel_ranks_reduce_twice_per_layer():
    rank = Rank(LLAMA, ServingLayout(tp=4), COSTS)
    reductions = [call for call in token_calls(rank, 16) if call.case.op == "collective"]
    assert sum(call.times for call in reductions) == 2 * LLAMA.layer_count + 1  # and the embedding
    assert sum(call.case.op == "collective" for call in row_calls(rank, 4)) == 1


def test_quantised_products_have_a_kernel_that_quantises_unless_fused():
    layout = ServingLayout(weight_format="fp8_tensor")
    plain = [call.case.op for call in token_calls(Rank(LLAMA, layout, COSTS), 16)]
    fused = [call.case.op for call in token_calls(Rank(LLAMA, layout, replace(COSTS, fuses_quantisation=True)), 16)]
    assert plain.count("scaled_gemm") == fused.count("scaled_gemm") == 4
    assert plain.count("quantise") > 0 == fused.count("quantise")


def test_latent_attention_expands_keys_for_prompts_and_absorbs_them_for_decodes():
    rank = Rank(shape_of("deepseek-v3"), ServingLayout(tp=8, ep=8, expert_format="nvfp4"), COSTS)
    names = {call.name for call in token_calls(rank, 16)}, {call.name for call in token_calls(rank, 16, is_prompt=True)}
    assert "attention.absorb_keys" in names[0] - names[1]
    assert {"attention.keys_up", "attention.prefill"} == {call.name for call in prompt_calls(rank, 128, 64.5)}


def test_groups_that_attend_apart_split_tokens_and_exchange_rows():
    rank = Rank(shape_of("qwen3-30b-a3b"), ServingLayout(tp=4, attention_dp=4), COSTS)
    kinds = {dict(call.case.attributes)["kind"] for call in token_calls(rank, 64) if call.case.op == "collective"}
    assert "all_to_all" in kinds
    assert "all_reduce" not in kinds


def test_work_for_sequences_that_passes_beside_the_device_counts_where_it_takes_longer():
    batch = StepBatch.of_decode(64, kv_count=6400)
    device_s = table_of()(batch)
    for each_s, extra_s in ((device_s / 128, 0.0), (device_s / 32, device_s)):
        costs = replace(COSTS, host_step_s=1e-3, host_sequence_s=each_s)
        assert table_of(replace(costs, hides_sequences=True))(batch) == pytest.approx(device_s + 1e-3 + extra_s)
        assert table_of(costs)(batch) == pytest.approx(device_s + 1e-3 + 64 * each_s)


def test_experts_alone_follow_the_tokens_of_all_attention_groups():
    table = table_of(layout=ServingLayout(tp=8, ep=8, attention_dp=8), shape=shape_of("deepseek-v3"))
    step_s = table(StepBatch(prompt_tokens=8192, prompt_pairs=8192, prompt_sequences=8))
    assert 0.1 * step_s < table.shared_s(8192) < 0.9 * step_s
    assert table_of().shared_s(8192) == 0


def test_every_family_of_parts_is_named():
    parts = table_of(layout=ServingLayout(tp=2)).parts_s(StepBatch.of_decode(2, kv_count=64))
    assert parts.shape == (len(FAMILIES), 3)
    assert (parts[:, 0] > 0).all()


@pytest.mark.parametrize("name", engine_names())
def test_engine_files_are_read(name):
    costs = engine_costs(name)
    assert costs.source
    assert list(costs.graph_sizes) == sorted(costs.graph_sizes)
    assert costs.beside("ampere").host_step_s >= costs.host_step_s


HOST = 'title = "own"\nhost_step_s = 0\nhost_sequence_s = 0\nhost_call_s = 0\nsource = "own"\n'


@pytest.mark.parametrize(("text", "limits"), [
    ("", (8192, 256)),
    ('policy = "sarathi"', (512, 256)),
    ('policy = "sglang"', (8192, 2048)),
    ('policy = "sarathi"\ntoken_budget = 700\nsequence_limit = 9', (700, 9)),
])  # fmt: skip
def test_limits_that_a_file_does_not_state_are_those_of_its_policy(tmp_path, text, limits):
    path = tmp_path / "own.toml"
    path.write_text(HOST + text, "utf-8")
    costs = engine_costs(str(path))
    assert (costs.token_budget, costs.sequence_limit) == limits
    again = tmp_path / "again.toml"
    again.write_text(engine_text(costs), "utf-8")
    assert replace(engine_costs(str(again)), name="own") == costs


def test_unknown_engines_and_policies_are_refused(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(HOST + 'policy = "sarahti"', "utf-8")
    with pytest.raises(SpecError, match="sarathi"):
        engine_costs(str(path))

    with pytest.raises(SpecError, match="vllm_v1"):
        engine_costs("vllm_v11")


def test_prepared_steps_are_predicted_in_one_call_and_take_the_same_times():
    calls = []

    def counted(cases):
        calls.append(len(cases))
        return by_bytes(cases)

    batches = [StepBatch.of_decode(8, kv_count=800), StepBatch.of_prompt(100), StepBatch.of_decode(40, kv_count=9000)]
    ready, plain = table_of(times=counted), table_of()
    ready.prepare(batches)
    assert len(calls) == 1
    assert [ready(batch) for batch in batches] == [plain(batch) for batch in batches]
    assert len(calls) == 1


def test_a_table_answers_others_while_it_is_prepared():
    table, plain, other, seen = table_of(), table_of(), StepBatch.of_decode(8, kv_count=800), []

    def batches():
        seen.append(table(other))
        yield StepBatch.of_prompt(100)
        seen.append(table(other))
        raise KeyError

    with pytest.raises(KeyError):
        table.prepare(batches())
    assert [*seen, table(other)] == [plain(other)] * 3
