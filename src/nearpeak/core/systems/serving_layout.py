"""Layout of a model over the devices of one serving replica, and its formats."""

from dataclasses import dataclass

from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLayout:
    """Parallel degrees and formats of one replica of a served model.

    >>> layout = ServingLayout(tp=8, attention_dp=8, ep=8, weight_format="fp8_block")
    >>> layout.device_count, layout.attention_tp, layout.expert_scheme
    (8, 1, 'fp8_block')
    >>> ServingLayout(tp=8, attention_dp=3)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: attention_dp 3 does not divide tp 8
    """

    tp: int = 1
    """Devices of a pipeline stage; dense products are split over all of them unless attention is replicated."""
    pp: int = 1
    """Pipeline stages."""
    ep: int = 1
    """Groups that hold different experts; tp / ep devices split each expert."""
    attention_dp: int = 1
    """Groups of devices of a stage that attend to different sequences; tp / attention_dp devices split the heads."""
    weight_format: str = "bf16"
    """Number format of dense weights, or a scheme of quantised products (`fp8_tensor`, `fp8_block`, `nvfp4`, …)."""
    expert_format: str = ""
    """Likewise of routed experts; empty for that of the dense weights."""
    activation_format: str = "bf16"
    """Format of activations between products, of embedding and head."""
    kv_format: str = "bf16"
    """Format of the key-value cache."""
    adapter_slot_count: int = 0
    """LoRA adapters that a device holds side by side (vLLM `max_loras`)."""
    adapter_count: int = 0
    """Adapters that requests ask for, evenly."""
    adapter_rank: int = 0
    """Rank of the adapters; 0 without them, or where neither their products nor their memory count."""

    def __post_init__(self) -> None:
        """Refuse degrees that do not divide."""
        for name in ("tp", "pp", "ep", "attention_dp"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise SpecError(f"{name}={value!r}: must be a whole number of at least 1")
        for name in ("ep", "attention_dp"):
            if self.tp % getattr(self, name):
                raise SpecError(f"{name} {getattr(self, name)} does not divide tp {self.tp}")

    @property
    def device_count(self) -> int:
        """Devices of the replica."""
        return self.tp * self.pp

    @property
    def attention_tp(self) -> int:
        """Devices that split the heads of one sequence."""
        return self.tp // self.attention_dp

    @property
    def expert_scheme(self) -> str:
        """Format of the routed experts."""
        return self.expert_format or self.weight_format

    @property
    def words(self) -> str:
        """The layout in words.

        >>> ServingLayout(tp=2, weight_format="fp8_tensor", kv_format="fp8_e4m3").words
        'tp=2, weights fp8_tensor, cache fp8_e4m3'
        """
        degrees = [
            f"{name}={getattr(self, name)}" for name in ("tp", "pp", "ep", "attention_dp")
            if name == "tp" or getattr(self, name) > 1
        ]  # fmt: skip
        return f"{','.join(degrees)}, weights {self.weight_format}, cache {self.kv_format}"
