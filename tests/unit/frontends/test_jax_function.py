"""JAX functions: jaxprs walked primitive by primitive, forward and gradient, loops counted as often as they run."""

from collections import Counter

import pytest
from tests.sampling import sampled

jax = pytest.importorskip("jax", reason="needs the extra jax")
jnp, lax = jax.numpy, jax.lax

import nearpeak  # noqa: E402
from nearpeak.errors import SpecError  # noqa: E402
from nearpeak.frontends.jax import primitives  # noqa: E402
from nearpeak.ops import aten_matchers, work_of  # noqa: E402


def abstract(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


def captured(function, *args, step="forward"):
    return nearpeak.capture(function, inputs=args, step=step)


def cases(workload, op, phase=None):
    return [c.case for c in workload.calls if c.case is not None and c.case.op == op and phase in (None, c.phase)]


def axes(case, *names):
    return tuple(dict(case.axes)[name] for name in names)


def flop(workload, prefix="matrix"):
    calls = [(work_of(call.case), call.call_count) for call in workload.calls if call.case is not None]
    return sum(count * n for work, count in calls for unit, n in work.flop.items() if unit.startswith(prefix))


def network(p, x):
    return jax.nn.relu(x @ p["w"] + p["b"]) @ p["v"]


PARAMETERS = {"w": abstract(8, 16), "b": abstract(16), "v": abstract(16, 4)}


def test_a_jitted_network_is_its_products_sums_and_activation():
    workload = captured(jax.jit(network), PARAMETERS, abstract(2, 8))
    assert [(c.operator, c.phase) for c in workload.calls] == [
        ("jax.dot_general", "forward"), ("jax.add", "forward"), ("jax.max", "forward"), ("jax.dot_general", "forward"),
    ]  # fmt: skip
    assert [axes(case, "m", "n", "k") for case in cases(workload, "gemm")] == [(2, 16, 8), (2, 4, 16)]
    assert axes(cases(workload, "elementwise")[0], "a", "b") == (32, 16)  # the bias is broadcast, read once


def test_no_array_is_ever_allocated():
    big = abstract(1 << 16, 1 << 16, dtype="bfloat16")
    workload = captured(jax.jit(jnp.matmul), big, big)
    assert flop(workload) == 2 * (1 << 48)


def test_the_gradient_runs_each_product_twice_more_except_for_the_input():
    workload = captured(jax.jit(network), PARAMETERS, abstract(2, 8), step="train")
    forward, backward = ([axes(c, "m", "n", "k") for c in cases(workload, "gemm", p)] for p in ("forward", "backward"))
    assert forward == [(2, 16, 8), (2, 4, 16)]
    assert sorted(sorted(shape) for shape in backward) == [[2, 4, 16], [2, 4, 16], [2, 8, 16]]
    kinds = Counter((b.kind, b.name) for b in workload.buffers if b.name)
    assert kinds == Counter([("weight", "0.b"), ("weight", "0.v"), ("weight", "0.w"), ("input", "1")])
    assert any("gradients of the first argument" in line for line in workload.assumptions)


def test_every_call_has_a_line_and_named_scopes_are_modules():
    def scoped(x):
        with jax.named_scope("block"):
            return jnp.tanh(x) * 2

    workload = captured(jax.jit(scoped), abstract(4, 4), step="train")
    calls = [c for c in workload.calls if c.module == "scoped.block"]
    assert {c.phase for c in calls} == {"forward", "backward"}
    assert all(call.source.startswith("frontends/test_jax_function.py:") for call in calls)
    assert all(call.module and call.source for call in workload.calls)


def test_a_scan_counts_its_body_once_per_round_and_writes_what_it_stacks():
    def run(w, x):
        return lax.scan(lambda c, row: (jnp.tanh(c @ w + row), c), x[0], x)

    workload = captured(run, abstract(4, 4), abstract(5, 2, 4))
    product = next(c for c in workload.calls if c.operator == "jax.dot_general")
    assert product.call_count == 5
    assert flop(workload) == 5 * 2 * 2 * 4 * 4


def test_a_loop_on_data_counts_its_body_once_and_says_so():
    workload = captured(lambda x: lax.while_loop(lambda v: v.sum() < 10, lambda v: v * 2, x), abstract(4))
    assert Counter(c.operator for c in workload.calls) == {"jax.reduce_sum": 1, "jax.lt": 1, "jax.mul": 1}
    assert workload.assumptions == ("1 × while_loop of unknown trip count: its body counts once",)


def test_a_condition_takes_its_true_branch_and_says_so():
    workload = captured(lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), abstract(4))
    assert "jax.sin" in {c.operator for c in workload.calls}
    assert "jax.cos" not in {c.operator for c in workload.calls}
    assert workload.assumptions == ("1 × condition on data: the true branch counts",)


def convolve(w, x):
    return lax.conv_general_dilated(x, w, (2, 1), [(1, 1), (0, 2)], dimension_numbers=("NHWC", "HWIO", "NHWC"))


def test_a_convolution_keeps_its_window_in_any_layout():
    case = cases(captured(convolve, abstract(3, 5, 8, 16), abstract(2, 12, 10, 8)), "conv")[0]
    assert axes(case, "batch", "in_channels", "out_channels", "h", "w", "kh", "kw") == (2, 8, 16, 12, 10, 3, 5)
    assert axes(case, "sh", "sw", "ph", "ph_end", "pw", "pw_end") == (2, 1, 1, 1, 0, 2)


def test_both_gradients_of_a_convolution_do_as_much_as_the_convolution():
    def loss(p, scale):
        return convolve(p["w"], p["x"]).sum() * scale

    given = {"w": abstract(3, 5, 8, 16), "x": abstract(2, 12, 10, 8)}
    workload = captured(loss, given, 1.0, step="train")
    works = [(c.phase, work_of(c.case).flop) for c in workload.calls if c.operator == "jax.conv_general_dilated"]
    assert [phase for phase, _ in works] == ["forward", "backward", "backward"]
    assert len({tuple(work.items()) for _, work in works}) == 1


def test_embedding_and_its_gradient_touch_rows_of_the_table():
    table, ids = abstract(100, 8), abstract(3, 5, dtype="int32")
    workload = captured(lambda t, i: t[i], table, ids, step="train")
    assert axes(cases(workload, "gather")[0], "rows", "width", "table_rows") == (15, 8, 100)
    scatter = cases(workload, "scatter", "backward")[0]
    assert axes(scatter, "rows", "width", "table_rows") == (15, 8, 100)
    assert dict(scatter.attributes)["accumulate"] is True


def test_custom_gradients_and_rematerialisation_are_walked_into():
    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))
    workload = captured(jax.checkpoint(lambda x: jnp.sin(square(x))), abstract(4), step="train")
    names = Counter((c.operator, c.phase) for c in workload.calls)
    assert names["jax.cos", "backward"] == 1
    assert names["jax.mul", "backward"] >= 3  # the square again, and its own gradient


def test_attention_written_in_jax_has_the_flop_of_its_two_products():
    def attend(q, k, v):
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4.0)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

    heads = abstract(2, 16, 4, 8, dtype="bfloat16")
    workload = captured(attend, heads, heads, heads)
    assert flop(workload) == 2 * 2 * 2 * 4 * 16 * 16 * 8
    assert not workload.uncovered_counts()


def test_a_pooling_window_in_any_place_is_a_maximum_over_windows():
    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), [(0, 0), (1, 0), (0, 0), (0, 0)])

    case = cases(captured(pool, abstract(2, 9, 8, 5)), "max_pool")[0]
    assert axes(case, "batch", "h", "w", "kh", "kw", "sh", "sw", "ph", "ph_end") == (10, 9, 8, 3, 2, 2, 2, 1, 0)


def library_functions():
    x, rows = jnp.ones((4, 8)), jnp.zeros(3, int)
    return [
        (lambda a: jnp.pad(a, 1), x), (lambda a: jnp.where(a > 0, a, 0), x), (lambda a: jnp.roll(a, 1), x),
        (lambda a: jnp.take(a, rows, 0), x), (jnp.sort, x), (jnp.argsort, x), (jnp.cumsum, x), (jax.nn.gelu, x),
        (jax.nn.logsumexp, x), (lambda a: jnp.clip(a, 0, 1), x), (lambda a: a.var(-1), x), (jnp.tril, x),
        (lambda a: lax.fori_loop(0, 5, lambda _, v: v * 2, a), x), (lambda a: lax.map(jnp.sin, a), x),
        (lambda a: lax.associative_scan(jnp.add, a), x), (jax.vmap(lambda r: jnp.outer(r, r)), x),
        (lambda a: jax.ops.segment_sum(a, jnp.zeros(4, int), 3), x), (lambda a: a // 2 % 3, jnp.arange(8)),
        (lambda a: lax.dynamic_update_slice(a * 2, a[:1], (rows[0], 0)), x), (lambda a: lax.top_k(a, 2), x),
    ]  # fmt: skip


@pytest.mark.parametrize("number", sampled(range(20), 7))
def test_functions_of_the_library_are_covered(number):
    function, given = library_functions()[number]
    assert not captured(jax.jit(function), given).uncovered_counts()


def test_random_draws_are_covered_but_for_the_bits_that_they_shift():
    workload = captured(jax.jit(lambda key: jax.random.uniform(key, (4, 8))), jax.random.key(0))
    assert [axes(case, "elements") for case in cases(workload, "random")] == [(32,)]
    assert set(workload.uncovered_counts()) <= {"jax.shift_right_logical"}


def test_a_primitive_that_the_catalogue_lacks_is_uncovered_by_name():
    workload = captured(lambda x: jax.scipy.special.erfinv(x) + 1, abstract(4))
    assert workload.uncovered_counts() == {"jax.erf_inv": 1}


def test_names_that_are_translated_exist_in_the_catalogue_but_for_known_gaps():
    names = [f"aten.{name}.default" for name in (*primitives._UNARY.values(), *primitives._SCANNED.values())]
    names += [f"aten.{name}.Tensor" for name in primitives._BINARY.values()]
    names += [f"aten.{name}" for name in primitives._REDUCED.values()]
    gaps = {"asinh", "acosh", "atanh", "digamma", "lgamma", "atan2", "bitwise_left_shift", "bitwise_right_shift"}
    assert {name.split(".")[1] for name in names if name not in aten_matchers()} <= gaps


def test_options_of_modules_are_refused():
    with pytest.raises(SpecError, match="--dtype has no meaning"):
        nearpeak.capture(jax.jit(network), inputs=(PARAMETERS, abstract(2, 8)), dtype="bf16")
    with pytest.raises(SpecError, match="no step 'decode'; use forward or train"):
        captured(jax.jit(network), PARAMETERS, abstract(2, 8), step="decode")


def test_stacked_and_tiled_arrays_are_copies():
    workload = nearpeak.capture(
        lambda x, y: jnp.tile(jnp.stack([x, y]), 2), inputs=(jnp.ones((4, 4)), jnp.ones((4, 4)))
    )
    assert {call.case.op for call in workload.calls} == {"copy"}
