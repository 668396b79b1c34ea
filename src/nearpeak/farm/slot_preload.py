"""Preloading of core-slot processes: imports and first calls that forked children inherit."""


def predictions() -> None:
    """Import what predicts, and predict once: compiled code is loaded with the first call."""
    from nearpeak.api.achievable_time import predict
    from nearpeak.ops import case

    predict(case("gemm", m=128, n=128, k=128, dtype="bf16"), "h100_sxm")


def simulations() -> None:
    """Import what simulates."""
    import nearpeak.simulation.step_simulation  # noqa: F401
