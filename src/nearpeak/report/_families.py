"""Families of operators, for colours: found by the words in an operator's name, as reports know no catalogue."""

FAMILIES = (
    # Searched in order; the first family one of whose words is in the name takes it.
    ("attention", "Attention", ("attention", "delta_rule", "ssd_scan", "selective_scan", "wkv", "rotary")),
    ("convolution", "Convolution", ("conv",)),
    ("product", "Matrix product", ("gemm", "matmul", "linear", "einsum", "bmm", "vector_search", "pq_search")),
    ("optimizer", "Optimizer", ("adam", "adafactor", "sgd", "optim", "lamb", "rmsprop", "muon", "lbfgs", "kfac")),
    ("norm", "Norm, softmax, loss", ("norm", "softmax", "entropy", "loss")),
    (
        "movement",
        "Data movement",
        (
            "collective",
            "transfer",
            "copy",
            "embedding",
            "gather",
            "scatter",
            "index",
            "cat",
            "concat",
            "fill",
            "pad",
            "sort",
            "nonzero",
            "unique",
            "masked_select",
            "im2col",
            "one_hot",
        ),
    ),
    (
        "reduction",
        "Pooling, reduction",
        (
            "pool",
            "reduc",
            "sum",
            "mean",
            "max",
            "min",
            "interpolate",
            "resize",
            "upsample",
            "topk",
            "kthvalue",
            "mode",
            "scan",
            "histogram",
        ),
    ),
    ("pointwise", "Element-wise", ()),
)
"""Identifier, name for people and words of each family; the last one takes the rest."""


def family_of(operator: str) -> str:
    """Return the identifier of the family of `operator`.

    >>> family_of("conv_transpose"), family_of("rms_norm"), family_of("add")
    ('convolution', 'norm', 'pointwise')
    """
    name = operator.lower()
    for identifier, _, words in FAMILIES:
        if any(word in name for word in words):
            return identifier
    return FAMILIES[-1][0]
