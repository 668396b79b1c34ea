"""Choice of an inference engine that builds its own kernels from a model, and of the formats that it may use."""

from dataclasses import dataclass

from nearpeak.errors import SpecError

ENGINES = ("tensorrt", "onnxruntime")
"""Engines whose graph rewriting is modelled."""
ENGINE_FORMATS = ("fp32", "fp16", "int8")
"""Formats that an engine can be told to build with; without one it follows those of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """An engine and the format that it builds with.

    >>> engine_of("tensorrt:int8")
    EngineChoice(name='tensorrt', dtype='int8')
    >>> engine_of("tensorrt").dtype, engine_of("tensorrt:fp16").words
    ('', 'tensorrt:fp16')
    """

    name: str
    """One of ENGINES."""
    dtype: str = ""
    """One of ENGINE_FORMATS; empty where the engine follows the formats of the model."""

    @property
    def words(self) -> str:
        """The choice as it is written."""
        return f"{self.name}:{self.dtype}" if self.dtype else self.name


def engine_of(text: str) -> EngineChoice:
    """Return the engine that is written as `NAME` or `NAME:FORMAT`.

    Raises:
        SpecError: the engine or the format is unknown.
    """
    name, sign, dtype = text.partition(":")
    if name not in ENGINES:
        raise SpecError(f"engine {text!r}: {name!r} is not one of {', '.join(ENGINES)}; e.g. tensorrt or tensorrt:int8")
    if sign and dtype not in ENGINE_FORMATS:
        raise SpecError(f"engine {text!r}: {dtype!r} is not one of {', '.join(ENGINE_FORMATS)}; e.g. {name}:int8")
    return EngineChoice(name=name, dtype=dtype)
