"""Recurrent cells (LSTM, GRU, Elman) in float64 NumPy, one step forward and one step back."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nearpeak.ops.shared.reference.special_functions import sigmoid

Step = tuple[Any, ...]
"""Values of a forward step that its backward step needs."""


def _sums(x: Any, h: Any, p: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what input and state contribute to the gates, biases included."""
    return x @ p["w_ih"].T + p.get("b_ih", 0.0), h @ p["w_hh"].T + p.get("b_hh", 0.0)


def _lstm(x: Any, h: Any, c: Any, p: Mapping[str, Any]) -> tuple[Any, Any, Step]:
    raw = np.split(sum(_sums(x, h, p)), 4, axis=-1)
    i, f, g, o = sigmoid(raw[0]), sigmoid(raw[1]), np.tanh(raw[2]), sigmoid(raw[3])
    cell = f * c + i * g
    wide = o * np.tanh(cell)
    return (wide @ p["w_hr"].T if "w_hr" in p else wide), cell, (x, h, c, i, f, g, o, cell, wide)


def _lstm_back(dh: Any, dc: Any, step: Step, p: Mapping[str, Any], grads: dict[str, Any]) -> tuple[Any, Any, Any]:
    x, h, c, i, f, g, o, cell, wide = step
    if "w_hr" in p:
        grads["w_hr"] += dh.T @ wide
        dh = dh @ p["w_hr"]
    top = np.tanh(cell)
    dc = dc + dh * o * (1 - top * top)
    raw = (dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * top * o * (1 - o))
    gates = np.concatenate(raw, axis=-1)
    return (*_products_back(gates, gates, x, h, p, grads), dc * f)


def _gru(x: Any, h: Any, c: Any, p: Mapping[str, Any]) -> tuple[Any, Any, Step]:
    (xr, xz, xn), (hr, hz, hn) = (np.split(part, 3, axis=-1) for part in _sums(x, h, p))
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = np.tanh(xn + r * hn)
    return n + z * (h - n), c, (x, h, r, z, n, hn)


def _gru_back(dh: Any, dc: Any, step: Step, p: Mapping[str, Any], grads: dict[str, Any]) -> tuple[Any, Any, Any]:
    x, h, r, z, n, hn = step
    dn = dh * (1 - z) * (1 - n * n)
    dr, dz = dn * hn * r * (1 - r), dh * (h - n) * z * (1 - z)
    from_input, from_state = np.concatenate((dr, dz, dn), axis=-1), np.concatenate((dr, dz, dn * r), axis=-1)
    dx, dh_back = _products_back(from_input, from_state, x, h, p, grads)
    return dx, dh_back + dh * z, dc


def _plain(relu: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the step of the plain cell and its way back."""

    def step(x: Any, h: Any, c: Any, p: Mapping[str, Any]) -> tuple[Any, Any, Step]:
        raw = sum(_sums(x, h, p))
        y = np.maximum(raw, 0) if relu else np.tanh(raw)
        return y, c, (x, h, y)

    def back(dh: Any, dc: Any, saved: Step, p: Mapping[str, Any], grads: dict[str, Any]) -> tuple[Any, Any, Any]:
        x, h, y = saved
        raw = dh * (y > 0) if relu else dh * (1 - y * y)
        return (*_products_back(raw, raw, x, h, p, grads), dc)

    return step, back


def _products_back(
    from_input: Any, from_state: Any, x: Any, h: Any, p: Mapping[str, Any], grads: dict[str, Any]
) -> tuple[Any, Any]:
    """Add up the gradients of weights and biases; return those of input and state."""
    for name, gates, operand in (("ih", from_input, x), ("hh", from_state, h)):
        grads[f"w_{name}"] += gates.T @ operand
        if f"b_{name}" in grads:
            grads[f"b_{name}"] += gates.sum(axis=0)
    return from_input @ p["w_ih"], from_state @ p["w_hh"]


STEPS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lstm": (_lstm, _lstm_back), "gru": (_gru, _gru_back), "rnn_tanh": _plain(False), "rnn_relu": _plain(True),
}  # fmt: skip
"""Step and its way back by cell."""


def run(
    cell: str, x: Any, h0: Any, c0: Any, params: list[dict[str, Any]], directions: int
) -> tuple[Any, Any, Any, list[list[Step]]]:
    """Return output [steps,batch,width], last states h and c, and what each layer and direction keeps of each step."""
    states_h, states_c, tapes = [], [], []
    for first in range(0, len(params), directions):
        results = []
        for number in range(first, first + directions):
            h, c, tape, outs = h0[number], c0[number], [], []
            for value in x[:: -1 if number % directions else 1]:
                h, c, saved = STEPS[cell][0](value, h, c, params[number])
                tape.append(saved)
                outs.append(h)
            results.append(np.stack(outs[:: -1 if number % directions else 1]))
            states_h.append(h)
            states_c.append(c)
            tapes.append(tape)
        x = np.concatenate(results, axis=-1)
    return x, np.stack(states_h), np.stack(states_c), tapes


def run_back(
    cell: str, dy: Any, dh_n: Any, dc_n: Any, params: list[dict[str, Any]], directions: int, tapes: list[list[Step]]
) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
    """Return the gradients of the input, of the first states h and c, and of each layer's and direction's weights."""
    grads = [{name: np.zeros_like(value) for name, value in p.items()} for p in params]
    dh0, dc0 = np.zeros_like(dh_n), np.zeros_like(dc_n)
    for first in reversed(range(0, len(params), directions)):
        parts = np.split(dy, directions, axis=-1)
        dx: Any = 0.0
        for number in range(first, first + directions):
            order = -1 if number % directions else 1
            upstream, dh, dc, input_grads = parts[number % directions][::order], dh_n[number], dc_n[number], []
            for grad, saved in zip(upstream[::-1], reversed(tapes[number]), strict=True):
                dx_step, dh, dc = STEPS[cell][1](grad + dh, dc, saved, params[number], grads[number])
                input_grads.append(dx_step)
            dx = dx + np.stack(input_grads[::-1])[::order]
            dh0[number], dc0[number] = dh, dc
        dy = dx
    return dy, dh0, dc0, grads
