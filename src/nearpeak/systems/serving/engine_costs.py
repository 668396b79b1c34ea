"""Costs and habits of serving engines beside kernels: host time, captured batch sizes, fusions; one TOML each."""

from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from nearpeak.base.canonical_json import canonical_json
from nearpeak.base.input_files import reading, toml_of_file
from nearpeak.base.registry import entry_of
from nearpeak.core.systems.serving_engine import Engine
from nearpeak.errors import SpecError
from nearpeak.systems.serving.policies import POLICIES

FOLDER = Path(__file__).parent / "engines"
_LIMITS = {"token_budget": "step_token_count", "sequence_limit": "sequence_count"}
"""Keys whose default is that of the scheduling policy, where it has one, and its name there."""
_TABLES = ("host_ratio", "product_ratio", "spread_ratio")
"""Keys that hold a ratio for each architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCosts:
    """Host costs and habits of one family of engine versions."""

    name: str
    """Name of its file."""
    title: str
    """Engine and versions in words."""
    policy: str = ""
    """Name of its scheduling policy."""
    is_assumed: bool = False
    """Whether host times are assumed, not fitted to measurements of the engine."""
    host_step_s: float
    """Host time of a step that the device waits for: scheduling, input preparation, sampling, output."""
    host_sequence_s: float
    """Likewise for each sequence of the step."""
    hides_sequences: bool = False
    """Whether that time for sequences passes beside launches and kernels, so that the longest of the three counts."""
    host_call_s: float
    """Host time of launching one kernel outside a graph."""
    host_prompt_s: float = 0.0
    """Host time that a step with prompts takes beyond others."""
    hidden_prompt_ratio: float = 0.0
    """Share of that time which is spent between launches, and hides behind the kernels as they do."""
    request_s: float = 0.0
    """Time before a request's first step and after its last: tokenisation, HTTP, detokenisation."""
    is_overlapped: bool = False
    """Whether the host prepares a step while the device runs the one before: tokens then leave one step late."""
    graph_sizes: tuple[int, ...] = ()
    """Batch sizes with a captured graph of a decode step, ascending; batches in between are padded. With attention
    data parallelism they are those of one rank, and all ranks are padded to the fullest one's.
    Source: NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/pyexecutor/cuda_graph_runner.py, _get_padded_batch."""
    fuses_positions: bool = False
    """Whether attention kernels rotate and store keys themselves."""
    fuses_quantisation: bool = False
    """Whether norms and activations write quantised results, so that no kernel of its own does."""
    fuses_routing: bool = True
    """Whether grouped products gather their rows themselves, and shared experts join before one all-reduce.
    Source: vLLM, fused_moe.py (sorted_token_ids); NVIDIA/TensorRT-LLM v1.0 docs, MoE backends."""
    all_reduce_format: str = "bf16"
    """Format in which all-reduces are asked for."""
    token_budget: int = 8192
    """Most tokens of a step; a file that does not state them takes those of its policy."""
    sequence_limit: int = 256
    """Most sequences of a step, likewise."""
    chunks_prompts: bool = True
    """Whether prompts are cut into chunks that share a step with decoding sequences."""
    memory_share: float = 0.9
    """Share of the device's memory that the engine takes."""
    free_share: float = 1.0
    """Share of what is free after weights and activations that the cache takes."""
    reserves_output: bool = False
    """Whether a request starts only when the cache can hold all of its tokens."""
    rank_wait_count: int = 0
    """Steps after which prompts of some attention ranks start without those of others; 0: none waits for others.
    Source: NVIDIA/TensorRT-LLM, AttentionDpConfig (enable_balance, off by default; timeout_iters, 50 by default)."""
    rank_gather_count: int = 0
    """Steps that prompts wait for more of them once each attention rank has one.
    Source: NVIDIA/TensorRT-LLM, AttentionDpConfig (batching_wait_iters, 10 by default)."""
    composition_ratio: float = 1.0
    """Half width of the 90 % interval of what composing kernels into steps adds, as a factor."""
    queue_ratio: float = 1.0
    """Likewise of what waiting for the first token adds."""
    host_ratio: tuple[tuple[str, float], ...] = ()
    """Host times over those of a Hopper machine, by architecture of the device, as hosts age with devices."""
    product_ratio: tuple[tuple[str, float], ...] = ()
    """Times of products over those of current libraries, by architecture, where the engine's are older."""
    spread_ratio: tuple[tuple[str, float], ...] = ()
    """`composition_ratio` on architectures that the engine's versions were not tuned for."""
    source: str
    """Documents of the habits and what the host times were fitted on."""

    def beside(self, architecture: str) -> "EngineCosts":
        """Return the costs on the usual host of devices of an architecture."""
        ratio = dict(self.host_ratio).get(architecture, 1.0)
        return replace(
            self, host_step_s=self.host_step_s * ratio, host_sequence_s=self.host_sequence_s * ratio,
            host_call_s=self.host_call_s * ratio, host_prompt_s=self.host_prompt_s * ratio,
            composition_ratio=dict(self.spread_ratio).get(architecture, self.composition_ratio),
        )  # fmt: skip

    def engine(
        self, kv_block_count: int, *, rank_count: int = 1, block_tokens: int = 16, step_tokens: int = 0,
        sequences: int = 0, context_limit: int = 0,
    ) -> Engine:  # fmt: skip
        """Return the engine with so many KV blocks on each of its attention ranks; 0 for its own limits.

        Half of what a request costs outside the engine is its way in, half the client's way to the next one.

        Raises:
            SpecError: the family states no scheduling policy.
        """
        if not self.policy:
            raise SpecError(f'engine {self.name!r}: states no scheduling policy; add policy = "vllm" or another')
        return Engine(
            policy=self.policy, kv_block_count=kv_block_count, block_token_count=block_tokens,
            step_token_count=step_tokens or self.token_budget, sequence_count=sequences or self.sequence_limit,
            context_token_count=context_limit, rank_count=rank_count, request_s=self.request_s / 2,
            turnaround_s=self.request_s / 2, reply_delay_count=1 if self.is_overlapped else 0,
            rank_wait_step_count=self.rank_wait_count, rank_gather_step_count=self.rank_gather_count,
        )  # fmt: skip

    def padded(self, sequences: int) -> int:
        """Return the captured batch size that `sequences` decoding ones run at; their own number without a graph."""
        return next((size for size in self.graph_sizes if size >= sequences), sequences)

    def has_graph(self, sequences: int) -> bool:
        """Return whether a decode step of so many sequences runs as a graph."""
        return bool(self.graph_sizes) and sequences <= self.graph_sizes[-1]


def engine_names() -> tuple[str, ...]:
    """Return the names of all engine families."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def engine_costs(name: str) -> EngineCosts:
    """Return the costs of an engine family, or those of a TOML file.

    Limits of a step that the file does not state are those of its scheduling policy.

    Raises:
        UnknownNameError: there is no such family, or no such policy.
        SpecError: the file lacks a key, has one that is not known, or a value of another kind.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = entry_of("engine", {known: FOLDER / f"{known}.toml" for known in engine_names()}, name)
    stated = toml_of_file(path, f"engine {path}")
    unknown = set(stated) - {field.name for field in fields(EngineCosts)}
    if unknown:
        raise SpecError(f"{path.name}: {', '.join(sorted(unknown))} is no key of an engine")
    needed = [field.name for field in fields(EngineCosts) if field.default is MISSING and field.name != "name"]
    missing = [name for name in needed if name not in stated]
    if missing:
        raise SpecError(f"{path.name}: {', '.join(missing)} is missing; an engine's file states {', '.join(needed)}")
    if stated.get("policy"):
        policy = POLICIES[str(stated["policy"])]
        limits = {key: getattr(policy, name) for key, name in _LIMITS.items()}
        stated = {key: limit for key, limit in limits.items() if limit} | stated
    with reading(path, "engine"):
        stated["graph_sizes"] = tuple(int(size) for size in stated.get("graph_sizes", ()))
        for table in _TABLES:
            stated[table] = tuple((name, float(ratio)) for name, ratio in dict(stated.get(table, {})).items())
        costs = EngineCosts(**{"name": path.stem} | stated)
    for field in fields(EngineCosts):
        value = getattr(costs, field.name)
        kinds: dict[Any, tuple[type, ...]] = {float: (int, float), int: (int,), bool: (bool,), str: (str,)}
        wanted = kinds.get(field.type, (object,))
        if not isinstance(value, wanted) or (isinstance(value, bool) and field.type is not bool):
            raise SpecError(f"{path.name}: {field.name} = {value!r} is no {getattr(field.type, '__name__', '')}")
        if isinstance(value, int | float) and value < 0:
            raise SpecError(f"{path.name}: {field.name} = {value!r} must be at least 0")
    return costs


def engine_text(costs: EngineCosts) -> str:
    """Return the text of the TOML file of an engine.

    >>> text = engine_text(engine_costs("vllm_v1"))
    >>> text.splitlines()[1]
    'policy = "vllm"'
    """
    lines, ratios = list[str](), list[str]()
    for field in fields(EngineCosts):
        value = getattr(costs, field.name)
        if field.name == "name" or (value == field.default and field.name not in _LIMITS):
            continue
        if field.name in _TABLES:
            ratios += [f"\n[{field.name}]\n", *(f"{name} = {float(ratio)!r}\n" for name, ratio in value)]
        else:
            lines.append(f"{field.name} = {canonical_json(list(value) if isinstance(value, tuple) else value)}\n")
    return "".join([*lines, *ratios])
