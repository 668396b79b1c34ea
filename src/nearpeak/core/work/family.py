"""Families of operators, by which reports group and colour them."""

from collections.abc import Mapping

FAMILIES: Mapping[str, str] = {
    "attention": "Attention, recurrence",
    "convolution": "Convolution",
    "product": "Matrix product, algebra",
    "optimizer": "Optimizer",
    "norm": "Norm, softmax, loss",
    "movement": "Data movement",
    "reduction": "Pooling, reduction",
    "pointwise": "Element-wise",
}
"""Name for people of each family, in the order of legends; each operator file states its own."""
