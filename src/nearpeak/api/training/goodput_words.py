"""Goodput of a long run stated in words, `checkpoint=60s,restart=10min,mtbf=3.1h,spares=2,repair=1d`."""

import math
import re
from collections.abc import Mapping

from nearpeak.base.registry import unknown_name
from nearpeak.core.systems.goodput import GoodputReport
from nearpeak.errors import SpecError
from nearpeak.systems.training.goodput.failure_model import (
    HARDWARE_RATIO,
    CheckpointCost,
    ElasticPolicy,
    FailureModel,
    PeerCheckpoint,
    SpotMarket,
    prior_failures,
    shrink_rates,
)
from nearpeak.systems.training.goodput.run_goodput import MONTH_S, goodput_of
from nearpeak.units import parse

TIMES = (
    "checkpoint", "background", "restart", "mtbf", "interval", "horizon", "repair", "reshape", "migrate",
    "peer_interval", "peer_checkpoint", "peer_restart", "notice", "reclaim", "wait", "reversion",
)  # fmt: skip
"""Words that state times."""
SHARES = ("contention", "foreseen", "hardware", "peer_loss", "spot", "bid", "sigma")
"""Words that state shares, `5%` or `0.05`; `spot` and `bid` are of the price on demand."""
COUNTS = ("spares", "replicas", "least", "spread")
"""Words that state numbers; spares may be a share of the nodes, `2%`."""
NODE_DEVICES = 8
"""Devices of a node, where the caller does not state the nodes."""
_LONG_S = {"min": 60.0, "h": 3600.0, "d": 86_400.0}


def goodput_in_words(text: str, device_count: int, node_count: int = 0) -> GoodputReport:
    """Return the goodput that `text` asks for.

    `spares` replace broken nodes, `replicas` lets the job go on with fewer of them (down to `least`), `peer_interval`
    adds checkpoints in the memory of peers, `foreseen` and `migrate` move work away from nodes in time, `spot` runs the
    job on preemptible capacity.

    Args:
        device_count: devices of the job; without `mtbf`, the rate of failures follows from them.
        node_count: nodes of the job; 0 for eight devices each.

    Raises:
        SpecError: a word is unknown, stated twice or no such value, or one that another needs is missing.

    >>> report = goodput_in_words("checkpoint=60s,restart=10min,mtbf=3.1h,interval=1157s", 1024)
    >>> round(report.complete_ratio, 4)
    0.8527
    >>> goodput_in_words("checkpoint=60s,restart=10min,spare=2", 1024)
    Traceback (most recent call last):
    nearpeak.errors.UnknownNameError: --goodput word 'spare': not known; did you mean spares, spread, ...
    """
    nodes = node_count or -(-device_count // NODE_DEVICES)
    values = _values_of(text, nodes)
    for name, why in (("checkpoint", "as the script measures it"), ("restart", "as the script measures it")):
        _need(text, values, name, why)
    failures = _failures(text, values, device_count)
    return goodput_of(
        CheckpointCost(blocking_s=values["checkpoint"], background_s=values.get("background", 0.0),
                       contention_ratio=values.get("contention", 0.0)),
        values["restart"], failures=failures, policy=_policy(text, values), market=_market(text, values),
        interval_s=values.get("interval"), horizon_s=values.get("horizon", MONTH_S),
    )  # fmt: skip


def _values_of(text: str, node_count: int) -> Mapping[str, float]:
    """Return what each word states: seconds, shares or numbers."""
    values: dict[str, float] = {}
    for word in text.split(","):
        name, _, value = (part.strip() for part in word.partition("="))
        if name not in (*TIMES, *SHARES, *COUNTS):
            raise unknown_name("--goodput word", name, (*TIMES, *SHARES, *COUNTS))
        if name in values:
            raise SpecError(f"--goodput {name}: stands twice; state it once")
        values[name] = _value(name, value, node_count)
    return values


def _value(name: str, text: str, node_count: int) -> float:
    match = re.fullmatch(r"([0-9.]+(?:e[+-]?\d+)?)\s*([a-zµ%]*)", text)
    digits, unit = match.groups() if match else ("", "")
    try:
        if name in TIMES:
            return float(digits) * _LONG_S[unit] if unit in _LONG_S else parse(f"{digits} {unit}", "s")
        number = float(digits)
    except (SpecError, ValueError):
        kind = "time, e.g. 60s, 10min, 3.1h or 2d" if name in TIMES else "number"
        raise SpecError(f"--goodput {name}={text}: is not a {kind}") from None
    if unit == "%" and name == "spares":
        return float(math.ceil(number / 100 * node_count))
    if unit not in ("", "%") or (unit == "%" and name in COUNTS):
        raise SpecError(f"--goodput {name}={text}: takes a number{'' if name in COUNTS else ' or a share in %'}")
    if name in ("spares", "replicas", "least") and number != int(number):
        raise SpecError(f"--goodput {name}={text}: must be a whole number")
    return number / 100 if unit == "%" else number


def _need(text: str, values: Mapping[str, float], name: str, why: str) -> None:
    if name not in values:
        form = "TIME" if name in TIMES else "NUMBER"
        raise SpecError(f"--goodput {text!r}: needs {name}={form}, {why}")


def _failures(text: str, values: Mapping[str, float], device_count: int) -> FailureModel:
    """Return the stated rate of failures, or the prior's."""
    if "spares" in values or "replicas" in values:
        _need(text, values, "repair", "the time that a broken node is away")
    prior = prior_failures(device_count)
    stated = "mtbf" in values
    return FailureModel(
        failure_interval_s=values.get("mtbf", prior.failure_interval_s),
        spread_ratio=values.get("spread", 1.0 if stated else prior.spread_ratio),
        hardware_ratio=values.get("hardware", HARDWARE_RATIO), foreseen_ratio=values.get("foreseen", 0.0),
        repair_s=values.get("repair", 0.0), source="stated by the caller" if stated else prior.source,
    )  # fmt: skip


def _policy(text: str, values: Mapping[str, float]) -> ElasticPolicy:
    """Return what the job does when nodes break."""
    peer = None
    if "peer_interval" in values:
        for name in ("peer_checkpoint", "peer_restart"):
            _need(text, values, name, "the cost of checkpoints in the memory of peers")
        peer = PeerCheckpoint(interval_s=values["peer_interval"], blocking_s=values["peer_checkpoint"],
                              restart_s=values["peer_restart"], loss_ratio=values.get("peer_loss", 0.0))  # fmt: skip
    if "foreseen" in values:
        _need(text, values, "migrate", "the time to move the work of a node")
    replicas = int(values.get("replicas", 0))
    return ElasticPolicy(
        spare_count=int(values.get("spares", 0)),
        rates_ratio=shrink_rates(replicas, int(values.get("least", 1))) if replicas else (1.0,),
        reshape_s=values.get("reshape", values["restart"]), migrate_s=values.get("migrate", 0.0), peer=peer,
    )  # fmt: skip


def _market(text: str, values: Mapping[str, float]) -> SpotMarket | None:
    """Return the market of preemptible capacity; none where no spot price is stated."""
    if "spot" not in values:
        return None
    for name in ("bid", "sigma", "reversion"):
        _need(text, values, name, "the process of spot prices")
    return SpotMarket(
        price_ratio=values["spot"], bid_ratio=values["bid"], sigma_ratio=values["sigma"],
        reversion_s=values["reversion"], notice_s=values.get("notice", 0.0),
        reclaim_interval_s=values.get("reclaim", math.inf), wait_s=values.get("wait", 0.0),
    )  # fmt: skip
