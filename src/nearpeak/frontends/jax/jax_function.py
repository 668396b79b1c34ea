"""Capture of a JAX function by walking its jaxpr; nothing is computed."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, MissingExtraError, SpecError
from nearpeak.frontends.failure_message import stage
from nearpeak.frontends.jax.jaxpr_walk import Frame, Walk


def capture_jax(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, name: str, step: str = "forward"
) -> Workload:
    """Return the workload of a JAX function, jitted or not, as its jaxpr states it.

    Args:
        args: arrays, trees of arrays, or `jax.ShapeDtypeStruct`; nothing is allocated for these.
        step: `forward`, or `train` for the value and the gradient of the first argument (`jax.value_and_grad`); an
            output that is no single number becomes the sum of the means of its floating-point arrays.

    A `scan` counts its body as often as it runs. A `while_loop` whose trip count depends on data counts its body once,
    and a `cond` its true branch; both are named among the assumptions.

    Raises:
        MissingExtraError: JAX is not installed.
        SpecError: another step.
        CaptureError: JAX cannot trace the function.
    """
    try:
        import jax
    except ImportError:
        raise MissingExtraError("capture: JAX is not installed; install nearpeak[jax]") from None
    if step not in ("forward", "train"):
        raise SpecError(f"{name}: a JAX function has no step {step!r}; use forward or train")
    with stage(name, "tracing"):
        if step == "train":
            function = jax.value_and_grad(_with_loss(jax, function, name))
        closed = jax.make_jaxpr(function)(*args, **kwargs)
    walk = Walk(jax)
    inputs = walk.inputs((tuple(args), dict(kwargs)), closed.jaxpr.invars, trained=step == "train")
    outputs = walk.run(closed.jaxpr, [walk.constant(value) for value in closed.consts], inputs, Frame())
    walk.keep(outputs)
    notes = []
    if step == "train":
        notes.append("the step gives the gradients of the first argument; no optimizer follows")
    return walk.builder.workload(name, step, {"kind": "jax", "jax": str(jax.__version__)}, notes, walk.guards())


def is_jax(function: Any, inputs: Any) -> bool:
    """Return whether a function or its inputs are JAX's, without importing JAX."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    leaves = jax.tree_util.tree_leaves(inputs)
    return isinstance(function, jax.stages.Wrapped) or any(
        isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) for leaf in leaves
    )


def _with_loss(jax: Any, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function with a scalar loss."""
    jnp = jax.numpy

    def loss(*args: Any, **kwargs: Any) -> Any:
        every = map(jnp.asarray, jax.tree_util.tree_leaves(function(*args, **kwargs)))
        leaves = [leaf for leaf in every if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        if not leaves:
            raise CaptureError(f"{name}: no output has a gradient; use step 'forward'")
        if len(leaves) == 1 and leaves[0].shape == ():
            return leaves[0]
        with jax.named_scope("loss"):
            return sum(abs(leaf).mean() if jnp.iscomplexobj(leaf) else leaf.mean() for leaf in leaves)

    return loss
