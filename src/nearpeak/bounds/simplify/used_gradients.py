"""Gradients of a convolution that are used: none takes the products, or reads the operands, of the others."""

from collections.abc import Sequence

from nearpeak.bounds.simplify.value_graph import Graph, OperatorCall
from nearpeak.bounds.value_facts.call_operands import packet

_UNREAD = ((1,), (2,), (1, 2))
"""By gradient, of input, weight and bias: operands that it does not depend on, of upstream gradient, input, weight."""


def operands_of(graph: Graph, stated: OperatorCall, inputs: Sequence[int], place: int) -> tuple[int, ...]:
    """Return the operands of a call's result, zeros in place of those that it does not depend on."""
    wanted = _wanted(stated)
    unread = _UNREAD[wanted[place]] if place < len(wanted) else ()
    return tuple(
        graph.constant(0.0, *graph[number][2:4]) if position in unread else number
        for position, number in enumerate(inputs)
    )


def gradient_shares(graph: Graph, live: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return by call how many of how many of its gradients that take products are used, where these are fewer."""
    used: dict[int, tuple[int, int]] = {}
    for number in live:
        stated = graph[number].options
        wanted = _wanted(stated) if number in graph.owner and isinstance(stated, OperatorCall) else ()
        if wanted:
            call = graph.owner[number]
            used[call] = (used.get(call, (0, 0))[0] + (wanted[stated.result] < 2), sum(place < 2 for place in wanted))
    return {call: counts for call, counts in used.items() if counts[0] < counts[1]}


def _wanted(stated: OperatorCall) -> tuple[int, ...]:
    """Return which gradients a call of a convolution's gradients was asked for; none of other calls."""
    mask = stated.value("output_mask") if packet(stated.name) == "convolution_backward" else None
    return tuple(place for place, asked in enumerate(mask) if asked) if isinstance(mask, tuple) else ()
