"""Recurrent layers over a whole sequence: LSTM, GRU and Elman cells, stacked, bidirectional, projected."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.base.registry import entry_of
from nearpeak.core.work.dtype import DType
from nearpeak.core.work.structure import Chain
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty, where
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.recurrent_cells import run, run_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one hidden unit of a cell costs per step and sequence, without its matrix products."""

    gate_count: int
    """Rows of the weights per hidden unit."""
    bias_count: int
    """Additions of biases: those that meet in one sum are added up beforehand."""
    flop_count: int
    """FLOP that join gates and state."""
    special_count: int
    """Sigmoids and hyperbolic tangents."""
    grad_flop_count: int
    """FLOP of the gates' gradients, from stored results of the forward pass."""
    idle_count: int = 0
    """Gates that only scale the state, and are not needed where it is zero."""
    unbiased_idle_count: int = 0
    """The same without biases, which a gate may scale together with the state."""


CELLS: Mapping[str, Cell] = {
    "lstm": Cell(
        gate_count=4,
        bias_count=4,
        flop_count=4,
        special_count=5,
        grad_flop_count=23,
        idle_count=1,
        unbiased_idle_count=1,
    ),
    "gru": Cell(gate_count=3, bias_count=4, flop_count=5, special_count=3, grad_flop_count=16, unbiased_idle_count=1),
    "rnn_tanh": Cell(gate_count=1, bias_count=1, flop_count=0, special_count=1, grad_flop_count=4),
    "rnn_relu": Cell(gate_count=1, bias_count=1, flop_count=1, special_count=0, grad_flop_count=1),
}
"""All cells by name."""


@free_when_empty
def recurrent(
    batch: int, steps: int, features: int, hidden: int, dtype: DType, layers: int = 1, directions: int = 1,
    projection: int = 0, written: int = 0, cell: str = "lstm", bias: bool = True, state: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of stacked recurrent layers over `steps` steps.

    Shapes: X [steps,batch,features]; per layer and direction W [gates * hidden, inputs], U [gates * hidden, width],
    with width = projection or hidden, inputs = features or directions * width, gates 4 (lstm), 3 (gru), 1.
    Counts: 2 * batch * steps * gates * hidden * (inputs + width) FLOP per layer and direction, and the projection,
    without the first step's products with states that are zero and the gates that would only scale them; per hidden
    unit and step lstm 4 FLOP and 5 special evaluations, gru 5 and 3, rnn_tanh 0 and 1, rnn_relu 1 and 0, and one FLOP
    per bias that cannot be added beforehand.
    Weights are read once, on the assumption that they stay on chip; what a backward pass wants kept, and dropout
    between layers, is not counted.

    Args:
        directions: 2 when the sequence is run both ways.
        projection: width of a projected LSTM; 0 for none.
        written: elements written where some results are not requested; 0 means all.
        cell: lstm, gru, rnn_tanh or rnn_relu.
        state: first states are given; else they are zero.

    Source: Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735; Cho et al. 2014, arXiv:1406.1078;
    equations as PyTorch states them.

    >>> recurrent(1, 2, 3, 4, DType(name="fp32", bits_count=32)).flop["matrix.fp32"]
    448
    """
    row, width = cell_of(cell), where(projection == 0, hidden, projection)
    units = batch * steps * layers * directions * hidden
    weights, biases = _parameters(features, hidden, width, layers, directions, projection, row)
    states = layers * directions * batch * (width + (hidden if cell == "lstm" else 0))
    idle, idle_biases = _idle(row, features, hidden, width, layers, directions, bias)
    carried = layers * directions * row.gate_count * hidden * width + idle
    zeros = (not state) * minimum(steps, 1) * carried
    unused = where(steps == 1, (not state) * (carried + idle_biases), 0 * carried)
    results = batch * steps * directions * width + states
    return Work(
        flop={
            f"matrix.{dtype.name}": 2 * batch * (steps * weights - zeros),
            unit(dtype): units * (row.flop_count + (row.bias_count if bias else 0)),
        },
        special_count=units * row.special_count,
        read_bytes=dtype.bytes(batch * steps * features + weights - unused + bias * biases + state * states),
        write_bytes=dtype.bytes(where(written == 0, results, written)),
        chain=_chain(batch, steps, hidden, layers),
    )


@free_when_empty
def _backward(
    batch: int, steps: int, features: int, hidden: int, dtype: DType, layers: int = 1, directions: int = 1,
    projection: int = 0, grad_states: int = 0, cell: str = "lstm", bias: bool = True, state: bool = True,
    grad_input: bool = True, grad_output: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of weights, biases, first states and, where wanted, the input.

    Counts: each product of the forward pass twice, for its operand and for its weights; per hidden unit and step lstm
    23 FLOP, gru 16, rnn_tanh 4, rnn_relu 1, and one per bias. Reads input, weights, first states, output and the
    gradients; what the forward pass kept of its gates, or forming it again, is not counted.

    Args:
        grad_states: how many of the last states have a gradient: 0, 1 or 2.
        grad_output: the output has a gradient.
    """
    row, width = cell_of(cell), where(projection == 0, hidden, projection)
    units = batch * steps * layers * directions * hidden
    weights, biases = _parameters(features, hidden, width, layers, directions, projection, row)
    skipped = 0 if grad_input else directions * row.gate_count * hidden * features
    idle, _ = _idle(row, features, hidden, width, layers, directions, bias)
    carried = layers * directions * row.gate_count * hidden * width + idle
    zeros = (not state) * minimum(steps, 1) * carried
    states = layers * directions * batch * (width + (hidden if cell == "lstm" else 0))
    inputs, outputs = batch * steps * features, batch * steps * directions * width
    read_elements = inputs + weights - where(steps == 1, (not state) * carried, 0 * carried) + state * states + outputs
    upstream = grad_output * outputs + grad_states * layers * directions * batch * width
    return Work(
        flop={
            f"matrix.{dtype.name}": 2 * batch * (steps * (2 * weights - skipped) - 2 * zeros),
            unit(dtype): units * (row.grad_flop_count + (row.bias_count if bias else 0)),
        },
        read_bytes=dtype.bytes(read_elements + upstream),
        write_bytes=dtype.bytes(grad_input * inputs + weights + bias * biases + state * states),
        chain=_chain(batch, steps, hidden, layers),
    )


def _chain(batch: int, steps: int, hidden: int, layers: int) -> Chain:
    """Return the dependent steps: each state needs the one before, each layer the one below; both ways run at once."""
    return Chain(step_count=unless_empty(batch * steps * hidden * layers, steps + layers - 1), width_count=hidden)


def cell_of(name: str) -> Cell:
    """Return the cell called `name`."""
    return entry_of("cell", CELLS, name)


def _parameters(
    features: int, hidden: int, width: int, layers: int, directions: int, projection: int, row: Cell
) -> tuple[int, int]:
    """Return the weights and the biases of all layers."""
    required_at_most("recurrent", {"both ways": 2}, directions=directions)
    inputs = features + maximum(layers - 1, 0) * directions * width + layers * width
    gates = directions * row.gate_count * hidden
    return gates * inputs + layers * directions * projection * hidden, 2 * layers * gates


def _idle(
    row: Cell, features: int, hidden: int, width: int, layers: int, directions: int, bias: bool
) -> tuple[int, int]:
    """Return the weights of inputs, and the biases, of gates that a first step from zero does not need."""
    count = row.idle_count if bias else row.unbiased_idle_count
    inputs = features + maximum(layers - 1, 0) * directions * width
    return count * directions * hidden * inputs, 2 * bias * count * layers * directions * hidden


MOST_LAYERS = 10_000
"""Each has inputs of its own; more are a typing error."""


def _names(layers: int, directions: int) -> list[str]:
    return [f"_l{layer}{'_reverse' * back}" for layer in range(layers) for back in range(directions)]


def _inputs(
    batch: int, steps: int, features: int, hidden: int, dtype: str, layers: int, directions: int, projection: int,
    cell: str, bias: bool, state: bool, **_: Any,
) -> dict[str, Tensor]:  # fmt: skip
    required_at_most("recurrent", {"most layers that inputs are made for": MOST_LAYERS}, layers=layers)
    required_at_most("recurrent", {"both ways": 2}, directions=directions)
    width, gates = projection or hidden, cell_of(cell).gate_count * hidden
    shapes: dict[str, tuple[int, ...]] = {"x": (steps, batch, features)}
    if state:
        shapes["h0"] = (layers * directions, batch, width)
        shapes |= {"c0": (layers * directions, batch, hidden)} if cell == "lstm" else {}
    for number, name in enumerate(_names(layers, directions)):
        shapes[f"w_ih{name}"] = (gates, features if number < directions else directions * width)
        shapes[f"w_hh{name}"] = (gates, width)
        shapes |= {f"b_ih{name}": (gates,), f"b_hh{name}": (gates,)} if bias else {}
        shapes |= {f"w_hr{name}": (projection, hidden)} if projection else {}
    return {name: Tensor(shape=shape, dtype=dtype) for name, shape in shapes.items()}


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return weights that leave gates open: recurrent ones as initialised, of the size of the root of 1 over the width.

    Of larger ones states fall into chaos: the last place of one decides about the signs of those some steps on. A gate
    that many features close is 0 in few bits, which hides what it keeps, and makes NaN of an infinite state.
    """
    sizes = {name: _size(w) for name, w in drawn.items() if name.startswith(_CARRYING)}
    sizes |= {name: max(1.0, _size(w) / MOST_SIZE) for name, w in drawn.items() if name.startswith("w_ih")}
    return {name: drawn[name] / size for name, size in sizes.items() if size > 0}


def _size(weight: Any) -> float:
    """Return what the weight makes of inputs of size 1, in the root of the mean square."""
    return float(np.sqrt((weight**2).mean() * weight.shape[-1])) if weight.size else 0.0


_CARRYING = ("w_hh", "w_hr")
"""Weights from one step's states to the next one's."""
MOST_SIZE = 2.0
"""Of what inputs of size 1 add to a gate: sigmoids of four times as much are above the least number of fp16."""


def _operands(arrays: dict[str, Any], arguments: dict[str, Any]) -> tuple[Any, Any, list[dict[str, Any]]]:
    """Return the first states h and c, and the weights per layer and direction."""
    names = _names(arguments["layers"], arguments["directions"])
    shape = (len(names), arguments["batch"])
    h0 = arrays.get("h0", np.zeros((*shape, arguments["projection"] or arguments["hidden"])))
    kinds = ("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
    params = [{kind: arrays[kind + name] for kind in kinds if kind + name in arrays} for name in names]
    return h0, arrays.get("c0", np.zeros((*shape, arguments["hidden"]))), params


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    h0, c0, params = _operands(arrays, arguments)
    output, h, c, _ = run(arguments["cell"], arrays["x"], h0, c0, params, arguments["directions"])
    return {"output": output, "h_n": h} | ({"c_n": c} if arguments["cell"] == "lstm" else {})


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    cell, directions = arguments["cell"], arguments["directions"]
    h0, c0, params = _operands(arrays, arguments)
    tapes = run(cell, arrays["x"], h0, c0, params, directions)[3]
    last = (arrays.get("grad_h_n", np.zeros_like(h0)), arrays.get("grad_c_n", np.zeros_like(c0)))
    dx, dh, dc, grads = run_back(cell, arrays["grad_output"], *last, params, directions, tapes)
    gradients = {"grad_x": dx} | {f"grad_{name}": grad for name, grad in (("h0", dh), ("c0", dc)) if name in arrays}
    for name, weight_grads in zip(_names(arguments["layers"], directions), grads, strict=True):
        gradients |= {f"grad_{kind}{name}": grad for kind, grad in weight_grads.items()}
    return gradients


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch

    x, cell = tensors["x"], arguments["cell"]
    if not arguments["hidden"]:
        raise NotImplementedError("PyTorch's kernel divides by the size of the hidden state")
    names = _names(arguments["layers"], arguments["directions"])
    shape = (len(names), arguments["batch"])
    h0 = tensors.get("h0", x.new_zeros(*shape, arguments["projection"] or arguments["hidden"]))
    kinds = ("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
    params = [tensors[kind + name] for name in names for kind in kinds if kind + name in tensors]
    options = (arguments["bias"], arguments["layers"], 0.0, True, arguments["directions"] == 2, False)
    if cell == "lstm":
        c0 = tensors.get("c0", x.new_zeros(*shape, arguments["hidden"]))
        return dict(zip(("output", "h_n", "c_n"), torch.lstm(x, (h0, c0), params, *options), strict=True))
    return dict(zip(("output", "h_n"), getattr(torch, cell)(x, h0, params, *options), strict=True))


def _from_aten(site: AtenSite) -> Match:
    """Match the layers that capture keeps whole, and their gradients."""
    x, hx, params = site.args["input"], site.args["hx"], site.args["params"]
    packet = site.name.split(".")[1].removesuffix("_backward")
    steps, batch = x.shape[:2][:: -1 if site.args["batch_first"] else 1]
    hidden = hx[-1].shape[-1]
    arguments: dict[str, Value] = {
        "batch": batch, "steps": steps, "features": x.shape[-1], "hidden": hidden, "layers": site.args["num_layers"],
        "directions": 2 if site.args["bidirectional"] else 1, "dtype": x.dtype, "bias": site.args["has_biases"],
        "projection": hx[0].shape[-1] if hx[0].shape[-1] != hidden else 0,
        "cell": "rnn_tanh" if packet == "rnn" else packet,
    }  # fmt: skip
    if "grads" not in site.args:
        return Match(arguments=arguments)
    grad_shapes = [grad.shape for grad in site.args["grads"]]
    whole = site.args["output"].shape in grad_shapes
    arguments |= {"grad_output": whole, "grad_states": len(grad_shapes) - whole}
    arguments["grad_input"] = bool(site.args.get("input_requires_grad", True))
    unread = {f"params[{i}]": 0 for i, tensor in enumerate(params) if len(tensor.shape) == 1}
    return Match(arguments=arguments, phase="backward", touched_bytes=unread)


def _from_onnx(site: OnnxSite) -> Match:
    """Match LSTM, GRU and RNN; peepholes, clipping and lengths of single sequences change nothing that is counted."""
    x, weight, recurrence = site.tensor(0), site.tensor(1), site.tensor(2)
    present = [site.optional(place) is not None for place in (3, 5)]
    steps, batch = x.shape[:2][:: -1 if site.attributes.get("layout", 0) else 1]
    relu = any(str(name).lower() == "relu" for name in site.attributes.get("activations", ()))
    arguments: dict[str, Value] = {
        "batch": batch, "steps": steps, "features": x.shape[-1], "hidden": recurrence.shape[-1],
        "directions": weight.shape[0], "dtype": x.dtype, "bias": present[0], "state": present[1],
        "written": sum(out.elements for out in site.outputs),
        "cell": {"LSTM": "lstm", "GRU": "gru"}.get(site.name, "rnn_relu" if relu else "rnn_tanh"),
    }  # fmt: skip
    return Match(arguments=arguments)


OPERATOR = Operator(
    forward=recurrent,
    family="attention",
    backward=_backward,
    degree_count=2,
    # Infinities times states, which are rounded, have the sign of a number that may be zero.
    tolerance=Tolerance(
        kind="normalisation",
        reduction="features hidden steps",
        gates="always",
        # cuDNN 9.19 on an H200: up to 45 for LSTM and GRU, 106 for tanh alone (measured 2026-11-27).
        gate_error_count=128.0,
        steps_count=4,
        special="x h0 c0 w_ih_l0 w_ih_l0_reverse",
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        f"nearpeak.{name}{phase}.default": _from_aten
        for name in ("lstm", "gru", "rnn", "rnn_tanh", "rnn_relu")
        for phase in ("", "_backward")
    },
    onnx=dict.fromkeys(("LSTM", "GRU", "RNN"), _from_onnx),
)
