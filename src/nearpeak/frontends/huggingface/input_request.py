"""Recipe interface: the model properties that an input recipe may read, and the tensors that it returns."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.huggingface.config_parts import parts

DEFAULT_TOKENS = 32
"""Text tokens of a prompt when the caller does not say how many; media tokens come on top."""

_OTHER_WORDS = {
    "image": ("vision", "visual", "image", "vit", "backbone", "encoder"),
    "video": ("video", "vision", "visual", "vit"),
    "audio": ("audio", "speech", "sound", "encoder"),
    "text": ("text", "llm", "language", "thinker", "decoder"),
}  # fmt: skip
"""Words in names of nested configurations, by kind of input."""

_MAIN = ("input_ids", "pixel_values", "pixel_values_videos", "input_features", "input_values", "inputs_embeds")
"""Parameters whose absence leaves out a kind of input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Makers of the tensors of one kind of input, or of one family of models."""

    gives: Mapping[str, Callable[["Ask"], Any]]
    """Maker by parameter of the forward pass; a maker that returns none omits the parameter."""
    config: Callable[[], Mapping[str, Any]] = dict
    """Settings of the recipe's model types that are too long for a file."""
    model_types: frozenset[str] = frozenset()
    """Model types that it applies to; empty for all without a specific recipe."""


class Ask:
    """The inputs of one model; each is made once, on first use by the model or another recipe."""

    def __init__(
        self, *, model: Any, model_type: str, recipes: tuple[Recipe, ...], options: CaptureOptions,
        hints: Mapping[str, Any], unknown: Callable[["Ask", str], Any], method: str = "forward",
    ) -> None:  # fmt: skip
        """Set model and options; `hints` are sizes, `unknown` makes required inputs that no recipe makes."""
        self.model, self.config, self.model_type = model, model.config, model_type
        self.batch, self.sequence, self.step, self.hints = options.batch_count, options.sequence, options.step, hints
        self._unknown = unknown
        signature = inspect.signature(getattr(type(model), method))
        self.parameters = {
            name: parameter.default is parameter.empty
            for name, parameter in signature.parameters.items()
            if name != "self" and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }
        self.annotations = {name: str(stated.annotation) for name, stated in signature.parameters.items()}
        specific = [recipe for recipe in recipes if model_type in recipe.model_types]
        self._recipes = [*specific, *(recipe for recipe in recipes if not recipe.model_types)]
        self._made: dict[str, Any] = {}
        self.named: list[tuple[Any, str, str]] = []

    def inputs(self) -> dict[str, Any]:
        """Return every tensor that the forward pass takes and a recipe makes, by parameter."""
        values = {name: self.given(name) for name in self.parameters}
        return {name: value for name, value in values.items() if value is not None}

    def given(self, name: str) -> Any:
        """Return the value of one parameter; none if no recipe makes it or the forward pass does not take it."""
        if name not in self._made:
            self._made[name] = None  # a recipe that asks in a circle finds nothing
            maker = next((recipe.gives[name] for recipe in self._recipes if name in recipe.gives), None)
            made = maker(self) if maker is not None and name in self.parameters else None
            self._made[name] = self._unknown(self, name) if made is None and self._must_have(name) else made
        return self._made[name]

    def _must_have(self, name: str) -> bool:
        """Return whether the forward pass, or a `get_<kind>_features` method, requires a parameter."""
        if name not in self.parameters or name in _MAIN:
            return self.parameters.get(name, False)
        return self.parameters[name] or any(name in self.needed(kind) for kind in ("image", "video", "audio"))

    def setting(self, *names: str, kind: str = "", default: Any = None) -> Any:
        """Return the first of the settings that a configuration part has, parts of `kind` first."""
        values = (getattr(part, name, None) for name in names for part in self.parts(kind))
        return self.hints.get(names[0], next((value for value in values if value is not None), default))

    def parts(self, kind: str = "") -> Iterator[Any]:
        """Yield the parts of the configuration, those named like `kind` first."""
        words = _OTHER_WORDS.get(kind, ())
        every = list(parts(self.config))
        rank = {word: index for index, word in enumerate(words)}
        key = [min((rank[w] for w in words if w in path), default=len(words)) for path, _ in every]
        for _, index in sorted((rank_, index) for index, rank_ in enumerate(key)):
            yield every[index][1]

    def floats(self, *shape: int) -> Any:
        """Return a tensor of unknown values in the model's format."""
        import torch

        return torch.empty(shape, dtype=self.model.dtype)

    def whole(self, values: Any) -> Any:
        """Return a tensor of known whole numbers."""
        import torch

        return torch.tensor(values, dtype=torch.int64)

    def filled(self, *shape: int, value: int = 1) -> Any:
        """Return a tensor that holds one known whole number everywhere."""
        import torch

        element = torch.full([1] * len(shape), value, dtype=torch.int64)
        return element.expand(shape)  # a view, whose value stays known at any size

    @property
    def values_known(self) -> bool:
        """Whether the values of plain tokens may be known; `values = "unknown"` among the hints denies it."""
        return bool(self.hints.get("values") != "unknown")

    def tokens(self, *shape: int, value: int) -> Any:
        """Return plain tokens, all of one value where values may be known."""
        import torch

        return self.filled(*shape, value=value) if self.values_known else torch.empty(shape, dtype=torch.int64)

    def features(self, kind: str) -> Any:
        """Return the result of the model's `get_<kind>_features` on the inputs, none if it has no such method."""
        import torch

        method = self._method(kind)
        if method is None:
            return None
        names = inspect.signature(method).parameters
        other = (
            {"pixel_values": "pixel_values_videos"} if kind == "video" and "pixel_values_videos" not in names else {}
        )
        arguments = {name: self.given(other.get(name, name)) for name in names if name not in ("kwargs", "return_dict")}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        if not arguments:
            return None
        with torch.no_grad():
            return method(**arguments)

    def needed(self, kind: str) -> frozenset[str]:
        """Return the required parameters of the model's `get_<kind>_features`."""
        method = self._method(kind)
        every = inspect.signature(method).parameters.values() if method is not None else ()
        return frozenset(
            parameter.name
            for parameter in every
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        )

    def _method(self, kind: str) -> Callable[..., Any] | None:
        name = f"get_{kind}_features"
        owner = next((module for module in self.model.modules() if hasattr(module, name)), None)
        return getattr(owner, name) if owner is not None else None
