"""Words that a shell may complete: targets, models, operators, runners, and files that take their place."""

from collections.abc import Iterable
from glob import escape, glob
from os.path import isdir

_MOST = 200
"""Names beyond which a shell's list helps nobody."""


def targets(incomplete: str) -> list[str]:
    """Return the targets that begin so, partitions once the device is named, and target files.

    >>> targets("h200_s"), "h100_sxm:1g.10gb" in targets("h100_sxm:")
    (['h200_sxm'], True)
    """
    from nearpeak.targets import TARGETS, target_of

    device, colon, _ = incomplete.partition(":")
    if colon and device in TARGETS:
        return _beginning((f"{device}:{part}" for part in target_of(device).partitions), incomplete)
    return [*_beginning(TARGETS.names(), incomplete), *_files(incomplete, (".toml",))]


def models(incomplete: str) -> list[str]:
    """Return the models that begin so, and files.

    >>> models("llama-3-")
    ['llama-3-70b', 'llama-3-8b']
    """
    from nearpeak.frontends.huggingface.published_models import MODELS

    return [*_beginning((*MODELS.names(), "hf:"), incomplete), *_files(incomplete, ())]


def operators(incomplete: str) -> list[str]:
    """Return the operators that begin so, and files of cases.

    >>> operators("scaled_g")
    ['scaled_gemm']
    """
    from nearpeak.ops import OPS

    return [*_beginning(OPS.names(), incomplete), *_files(incomplete, ())]


def operators_or_models(incomplete: str) -> list[str]:
    """Return the operators and the models that begin so, and files.

    >>> operators_or_models("resnet-1")
    ['resnet-101', 'resnet-18']
    """
    from nearpeak.ops import OPS

    return [*_beginning(OPS.names(), incomplete), *models(incomplete)]


def runners(incomplete: str) -> list[str]:
    """Return the runners that begin so.

    >>> runners("torch_cp")
    ['torch_cpu']
    """
    from nearpeak.measurement.runners import RUNNERS

    return _beginning(RUNNERS.names(), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))[:_MOST]


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return files and folders whose path begins so; nothing before a character is typed."""
    if not incomplete:
        return []
    paths = [f"{path}/" if isdir(path) else path for path in sorted(glob(f"{escape(incomplete)}*"))]
    return [path for path in paths if path.endswith("/") or not suffixes or path.endswith(suffixes)][:_MOST]
