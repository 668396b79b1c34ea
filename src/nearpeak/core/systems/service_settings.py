"""Settings of a served engine stated in words, `chunk=2048,prefix_cache=512,speculation=eagle:0.7:4,router=prefix`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nearpeak.base.registry import unknown_name
from nearpeak.errors import SpecError

ROUTERS = {"round_robin": "round_robin", "least_kv": "least_kv", "prefix": "prefix_aware"}
"""Router policies by the words that state them."""
DRAFTS = ("ngram", "eagle", "mtp")
"""Ways of drafting beside a model of its own: a look-up in the text, or one more layer and the head for each token."""
DEFAULT_ADAPTER_RANK = 16
"""Rank of LoRA adapters where none is stated, which answers say. Source: vLLM, config/lora.py (max_lora_rank 16)."""
MOST_ADAPTER_RANK = 1024
"""Largest rank that is read; vLLM takes up to 512."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What an operator sets beside the layout; 0 and empty for the engine's own choice.

    >>> settings_of("max_batch=64,speculation=eagle:0.7:4,lora=4:64:20ms").draft_token_count
    4
    """

    step_token_count: int = 0
    """Most tokens of a step (vLLM `max_num_batched_tokens`)."""
    is_chunked: bool | None = None
    """Whether long prompts are cut; none for the engine's own choice."""
    sequence_count: int = 0
    """Most running sequences of a replica's attention group (vLLM `max_num_seqs`)."""
    context_token_count: int = 0
    """Longest context that the engine takes (vLLM `max_model_len`)."""
    block_token_count: int = 16
    """Tokens of a block of the cache."""
    kv_block_count: int = 0
    """Blocks of the cache of one attention group, as an engine logs them at its start."""
    has_prefix_cache: bool = True
    """Whether blocks of prompts are kept for later requests."""
    prefix_token_count: int = 0
    """Tokens that the prompts of a drawn load share at their start."""
    draft: str = ""
    """What drafts tokens: one of DRAFTS or the name of a model; empty without speculation."""
    acceptance_ratio: float = 0.0
    """Probability that a drafted token is accepted, given that all before it were."""
    draft_token_count: int = 0
    """Tokens drafted per sequence and step."""
    router: str = "least_kv"
    """How requests are spread over the replicas."""
    adapter_slot_count: int = 0
    """Most LoRA adapters of a step (vLLM `max_loras`)."""
    adapter_count: int = 0
    """Adapters that the requests of a drawn load ask for, evenly."""
    adapter_load_s: float = 0.0
    """Time that loading an absent adapter adds to a step."""
    adapter_rank: int = DEFAULT_ADAPTER_RANK
    """Rank of the adapters, whose products and memory count; 0 counts slots and loads alone."""
    rank_wait_count: int | None = None
    """Steps after which prompts of some attention data-parallel ranks start without those of others (TensorRT-LLM
    `attention_dp_config`: `enable_balance` with `timeout_iters`), 0: none waits; none for the engine's own choice."""
    urgent_ratio: float = 0.0
    """Share of the requests of a drawn load that go before the others."""
    least_replica_count: int = 0
    """Replicas that are always there; 0 without autoscaling."""
    replica_request_count: float = 0.0
    """Requests running and waiting that one replica is meant to have."""
    start_s: float = 0.0
    """Time from the decision to start a replica until it takes requests."""


def settings_of(text: str) -> ServiceSettings:
    """Return the settings that words separated by commas state.

    Raises:
        SpecError: a word is unknown, stated twice, or has no such value.

    >>> settings_of("router=fastest")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --settings router='fastest': is not one of round_robin, least_kv, prefix
    """
    values: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = word.partition("=")
        if name not in WORDS:
            raise unknown_name("--settings word", name, tuple(WORDS))
        if name in ("prefix_cache",) and not sign:
            value = "on"
        if not value:
            raise SpecError(f"--settings {name}: needs a value, {FORMS[name]}")
        stated = WORDS[name](value)
        if set(stated) & set(values):
            raise SpecError(f"--settings {name}: is stated twice; state it once")
        values |= stated
    if "adapter_rank" in values and "adapter_slot_count" not in values:
        raise SpecError("--settings lora_rank: needs the adapters that have it, e.g. lora=4:64:20ms,lora_rank=16")
    return ServiceSettings(**values)


def _refused(name: str, value: str) -> SpecError:
    return SpecError(f"--settings {name}={value[:60]}: is not of the form {FORMS[name]}")


def _whole(name: str, field: str, least: int = 1) -> Callable[[str], dict[str, Any]]:
    def read(value: str) -> dict[str, Any]:
        if not value.isdecimal() or len(value) > 10 or not least <= int(value) <= 1_000_000_000:
            raise _refused(name, value)
        return {field: int(value)}

    return read


def _chunk(value: str) -> dict[str, Any]:
    return (
        {"is_chunked": False} if value == "off" else {"is_chunked": True} | _whole("chunk", "step_token_count")(value)
    )


def _prefix(value: str) -> dict[str, Any]:
    if value in ("on", "off"):
        return {"has_prefix_cache": value == "on"}
    return {"has_prefix_cache": True} | _whole("prefix_cache", "prefix_token_count")(value)


def _speculation(value: str) -> dict[str, Any]:
    draft, ratio, count = (*value.split(":"), "", "")[:3]
    accepted = _number("speculation", ratio, value)
    if value.count(":") != 2 or not draft or accepted > 1 or count not in map(str, range(1, 65)):
        raise _refused("speculation", value)
    return {"draft": draft, "acceptance_ratio": accepted, "draft_token_count": int(count)}


def _router(value: str) -> dict[str, Any]:
    if value not in ROUTERS:
        raise SpecError(f"--settings router={value!r}: is not one of {', '.join(ROUTERS)}")
    return {"router": ROUTERS[value]}


def _lora(value: str) -> dict[str, Any]:
    parts = value.split(":")
    if len(parts) > 3 or not all(part.isdecimal() and int(part) for part in parts[:2]):
        raise _refused("lora", value)
    if any(len(part) > 6 for part in parts[:2]):
        raise _refused("lora", value)
    slots, adapters = int(parts[0]), int(parts[1] if len(parts) > 1 else parts[0])
    if len(parts) < 3 and adapters > slots:
        raise SpecError(f"--settings lora={value}: {adapters} adapters in {slots} slots are loaded again and again; "
                        f"state the time of a load, e.g. lora={slots}:{adapters}:20ms")  # fmt: skip
    load_s = _seconds("lora", parts[2], value) if len(parts) > 2 else 0.0
    return {"adapter_slot_count": slots, "adapter_count": adapters, "adapter_load_s": load_s}


def _lora_rank(value: str) -> dict[str, Any]:
    if not value.isdecimal() or len(value) > 4 or int(value) > MOST_ADAPTER_RANK:
        raise _refused("lora_rank", value)
    return {"adapter_rank": int(value)}


def _priority(value: str) -> dict[str, Any]:
    ratio = _number("priority", value, value)
    if not 0 < ratio < 1:
        raise _refused("priority", value)
    return {"urgent_ratio": ratio}


def _scale(value: str) -> dict[str, Any]:
    parts = value.split(":")
    if len(parts) != 3 or not parts[0].isdecimal() or len(parts[0]) > 6 or not int(parts[0]):
        raise _refused("scale", value)
    each = _number("scale", parts[1], value)
    if not each:
        raise _refused("scale", value)
    return {"least_replica_count": int(parts[0]), "replica_request_count": each,
            "start_s": _seconds("scale", parts[2], value)}  # fmt: skip


def _number(name: str, text: str, value: str) -> float:
    """Return a number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise _refused(name, value)
    return number


def _seconds(name: str, text: str, value: str) -> float:
    from nearpeak.units import parse

    try:
        seconds = parse(text, "s")
    except SpecError:
        raise _refused(name, value) from None
    if not 0 <= seconds < 1e6:
        raise _refused(name, value)
    return seconds


FORMS = {
    "chunk": "chunk=TOKENS or chunk=off", "max_batch": "max_batch=SEQUENCES", "context": "context=TOKENS",
    "block": "block=TOKENS", "kv_blocks": "kv_blocks=BLOCKS",
    "prefix_cache": "prefix_cache, prefix_cache=off or prefix_cache=SHARED_TOKENS",
    "speculation": "speculation=ngram|eagle|mtp|MODEL:ACCEPTED:TOKENS, e.g. eagle:0.7:4",
    "router": "router=round_robin|least_kv|prefix", "lora": "lora=SLOTS:ADAPTERS:LOAD_TIME, e.g. 4:64:20ms",
    "lora_rank": f"lora_rank=RANK, 0 to {MOST_ADAPTER_RANK}",
    "rank_wait": "rank_wait=STEPS (0: no wait)", "priority": "priority=SHARE, e.g. 0.2",
    "scale": "scale=LEAST:REQUESTS_EACH:START_TIME, e.g. 1:32:60s",
}  # fmt: skip
"""Forms of the words."""
WORDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "chunk": _chunk, "max_batch": _whole("max_batch", "sequence_count"),
    "context": _whole("context", "context_token_count"), "block": _whole("block", "block_token_count"),
    "kv_blocks": _whole("kv_blocks", "kv_block_count"), "prefix_cache": _prefix, "speculation": _speculation,
    "router": _router, "lora": _lora, "lora_rank": _lora_rank,
    "rank_wait": _whole("rank_wait", "rank_wait_count", 0), "priority": _priority, "scale": _scale,
}  # fmt: skip
"""What each word states."""
