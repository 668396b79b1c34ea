import numpy as np
import pytest
from benchmarks.accuracy import noise
from benchmarks.accuracy.audit import cells_of, copies
from benchmarks.accuracy.families import families
from benchmarks.accuracy.families._routing import even_load, skewed_load
from benchmarks.accuracy.family import Block, folds
from benchmarks.accuracy.scores import rows_of, score

duckdb = pytest.importorskip("duckdb")
DECODE = (
    # device, dtype, batch, kv_len, q_heads, kv_heads, head_dim, window, latency_us, flags, software
    ("nvidia_h100_sxm", "bfloat16_kvbfloat16", 64, 4096, 32, 8, 128, 0, 400.0, 0, "one 2"),
    ("nvidia_h100_sxm", "bfloat16_kvbfloat16", 64, 4096, 32, 8, 128, 0, 390.0, 0, "two 1"),
    ("nvidia_h100_sxm", "bfloat16_kvbfloat16", 64, 4096, 32, 8, 128, 0, 300.0, 0x01, "one 1"),
    ("nvidia_h100_sxm", "bfloat16_kvbfloat16", 1, 64, 32, 8, 128, 128, 9.0, 0, "one 2"),
    ("nvidia_h100_sxm", "int8_kvint8", 1, 64, 32, 8, 128, 0, 9.0, 0, "one 2"),
)
LAYERS = (
    # dtype, tokens, hidden, inter, topk, experts, tp, ep, gated, distribution, latency_us
    ("bfloat16", 64, 4096, 1536, 8, 128, 2, 8, True, "balanced", 90.0),
    ("bfloat16", 64, 4096, 1536, 8, 128, 2, 8, True, "power_law_1.2", 80.0),
    ("bfloat16", 64, 4096, 1536, 8, 128, 2, 8, False, "balanced", 70.0),
    ("w4afp8", 64, 4096, 1536, 8, 128, 2, 8, True, "balanced", 70.0),
)


def write(path, columns, rows):
    table = duckdb.connect()
    table.execute(f"create table t ({columns})")
    table.executemany(f"insert into t values ({', '.join('?' for _ in rows[0])})", rows)
    table.execute(f"copy t to '{path}' (format parquet)")


@pytest.fixture
def corpus(tmp_path):
    columns = (
        "device text, dtype text, batch int, kv_len int, q_heads int, kv_heads int, head_dim int, "
        '"window" int, latency_us float, flags int, software text, source text, op text'
    )
    rows = [(*row, "aiconfigurator", "decode_attention") for row in DECODE]
    write(tmp_path / "aic_decode_attention.parquet", columns, rows)
    columns = (
        "dtype text, tokens int, hidden int, inter int, topk int, experts int, tp int, ep int, gated bool, "
        "distribution text, latency_us float, device text, source text, flags int"
    )
    rows = [(*row, "nvidia_h100_sxm", "aiconfigurator", 0) for row in LAYERS]
    write(tmp_path / "aic_moe.parquet", columns, rows)
    return tmp_path


def blocks(folder, family):
    return {block.name: block for block in families(family)[0].blocks(folder)}


def test_attention_rows_read_as_cases_of_the_best_new_software(corpus):
    found = blocks(corpus, "attention")
    assert set(found) == {"aiconfigurator h100_sxm decode_attention bfloat16_kvbfloat16"}
    block = next(iter(found.values()))
    assert sorted(block.measured_s) == pytest.approx([9e-6, 390e-6])
    assert block.dtypes == {"dtype": "bf16", "kv_dtype": "bf16"}
    assert block.attributes == {"causal": True, "align": "lower_right"}
    assert {name: column.tolist() for name, column in block.axes.items()}["left"] == [128, 0]
    assert score(rows_of(block, np.arange(2), "sites")).all.mean_ratio < 0.5


def test_a_layer_reads_as_its_matrices_side_by_side_with_its_own_load(corpus):
    found = blocks(corpus, "grouped_gemm")
    assert {name.partition("moe ")[2] for name in found} == {
        "bfloat16 balanced", "bfloat16 power_law_1.2", "bfloat16 balanced plain",
    }  # fmt: skip
    gated = found["aiconfigurator h100_sxm moe bfloat16 balanced"]
    assert {name: int(column[0]) for name, column in gated.axes.items()} == {
        "m": 64, "n": 3 * 768, "k": 4096, "groups": 16, "touched_groups": 16,
    }  # fmt: skip
    assert gated.setting_of(np.array([0])).layer_tokens_count.tolist() == [64]
    assert gated.setting_of(np.array([0])).layer_rows_count.tolist() == [64 * 8]
    assert found["aiconfigurator h100_sxm moe bfloat16 balanced plain"].axes["n"].tolist() == [2 * 768]
    skewed = found["aiconfigurator h100_sxm moe bfloat16 power_law_1.2"]
    assert skewed.axes["m"][0] > 64
    assert (folds(skewed) == folds(gated)).all()


def test_an_even_load_gives_every_expert_as_many_tokens():
    assert even_load(64, 8, 128, 1) == (512, 128)
    assert even_load(100_000, 8, 128, 4) == (200_000, 32)
    assert even_load(4, 2, 8, 1) == (8, 8)


def test_a_skewed_load_keeps_all_rows_and_touches_fewer_experts_of_the_fullest_rank():
    rows, touched = skewed_load(192, 1, 128, 1, 1.2)
    assert rows == 192
    assert touched < even_load(192, 1, 128, 1)[1]
    assert skewed_load(4096, 8, 128, 8, 1.2)[0] > 4096 * 8 / 8
    assert skewed_load(192, 1, 128, 1, 1.2) == (rows, touched)


def test_noise_compares_the_newest_version_with_older_ones_of_the_same_software(corpus):
    (corpus / "aic_moe.parquet").unlink()
    (found,) = noise.noises(corpus)
    assert "| 1 | 33.3 / 33.3 / 33.3 | one 1: 33.3 |" in found.line


def sent(device, times, sizes):
    return Block(
        source="one", device=device, kind="send", op="collective", dtypes={"dtype": "fp16"},
        axes={"elements": np.asarray(sizes)}, measured_s=np.asarray(times), sites=np.arange(len(sizes)),
    )  # fmt: skip


def test_a_block_with_the_times_of_another_device_is_a_copy():
    sizes = np.arange(1, 41)
    first = sent("a100_pcie_80gb", sizes * 1e-6, sizes)
    copy, own = (sent("h100_pcie", sizes * size, sizes) for size in (1e-6, 2e-6))
    by_chance = sent("h100_sxm", np.where(sizes <= 20, 1.0, 2.0) * sizes * 1e-6, sizes)
    few = sent("h20", sizes[:10] * 1e-6, sizes[:10])
    found = [(one.device, other.device, common, same) for one, other, common, same in copies([first, copy])]
    assert found == [("a100_pcie_80gb", "h100_pcie", 40, 40)]
    assert list(copies([first, own, by_chance, few])) == []


def test_a_module_is_predicted_as_the_sum_of_its_kernels(tmp_path):
    columns = (
        "source text, device text, op text, model text, tokens int, hidden int, tp int, q_heads int, kv_heads int, "
        "head_dim int, ffn int, latency_us float, flags int"
    )
    rows = [
        (
            "llmservingsim",
            "nvidia_h100_sxm",
            "layer_input_layernorm",
            model,
            tokens,
            4096,
            1,
            32,
            8,
            128,
            14336,
            90.0,
            0,
        )
        for model, tokens in (("Llama", 1024), ("Llama", 2048), ("Phi-mini-MoE", 1024))
    ]
    write(tmp_path / "llmservingsim_layers.parquet", columns, rows)
    found = blocks(tmp_path, "modules")
    written, fused = (
        found[f"llmservingsim h100_sxm {name} layer_input_layernorm"] for name in ("RMSNorm", "LayerNorm")
    )
    assert sum(count for count, _ in written.kernels) == 8
    assert [one.op for _, one in fused.kernels] == ["layer_norm"]
    whole = rows_of(written, np.arange(2), "source")
    alone = [count * rows_of(one, np.arange(2), "source").predicted_s for count, one in written.kernels]
    assert whole.predicted_s == pytest.approx(sum(alone))
    assert rows_of(written.part(np.array([1])), np.arange(1), "source").predicted_s == whole.predicted_s[1]
    assert cells_of(written).startswith("not audited: sums over several kernels")
