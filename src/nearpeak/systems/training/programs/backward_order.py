"""Order in which a backward pass without a schedule of its own for weights runs both kinds of gradients."""

from collections.abc import Sequence

from nearpeak.core.systems.rank_program import RankCall


def interleaved_backward(backward: Sequence[RankCall], weight: Sequence[RankCall]) -> tuple[RankCall, ...]:
    """Return the gradients of inputs and weights in the order in which frameworks run them.

    The gradient of a weight follows that of its product's input, behind the collectives beside the queue that start
    with the latter: they run under the former, and what comes next waits for them.

    >>> [call.name for call in interleaved_backward(
    ...     [RankCall(name="up"), RankCall(name="reduce", is_beside=True), RankCall(name="norm")],
    ...     [RankCall(name="up"), RankCall(name="up.bias")])]
    ['up', 'reduce', 'up', 'up.bias', 'norm']
    """
    order: list[RankCall] = []
    place, due = 0, ""
    for call in backward:
        if due and not call.is_beside:
            place = _append(order, weight, place, due)
            due = ""
        order.append(call)
        if place < len(weight) and call.transfer is None and call.name == weight[place].name:
            due = call.name
    if due:
        place = _append(order, weight, place, due)
    return (*order, *weight[place:])


def _append(order: list[RankCall], weight: Sequence[RankCall], place: int, name: str) -> int:
    """Add the gradients of the weights of a product, with what follows them up to the next product."""
    order.append(weight[place])
    place += 1
    while place < len(weight) and (weight[place].transfer is not None or weight[place].name.startswith(f"{name}.")):
        order.append(weight[place])
        place += 1
    return place
