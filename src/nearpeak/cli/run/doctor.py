"""Command `nearpeak doctor`: installed packages, operators and targets that load, CPU roofs, and remedies."""

import json as jsonlib
import sys

from nearpeak.cli.shared import options as shared

PACKAGES = {
    "torch": ("torch", "capturing PyTorch models, measuring on this CPU"),
    "transformers": ("hf", "named models and Hugging Face configurations"),
    "onnx": ("onnx", "capturing ONNX files"),
    "onnxruntime": ("onnxruntime", "the runner of that name"),
    "duckdb": ("tables", "Parquet tables"),
    "mcp": ("mcp", "the server of tools for language models"),
}


def doctor(json: bool = shared.JSON) -> None:
    """Check this installation: Python, packages, what each extra adds, device files, the roofs of this CPU."""
    checks = [(True, "python", sys.version.split()[0]), (True, "nearpeak", _version("nearpeak") or "from source")]
    for name, (extra, use) in PACKAGES.items():
        installed = _version(name)
        checks.append((installed is not None, name, installed or f"{use}: install nearpeak[{extra}]"))
    checks += [*_catalogue(), _roofs()]
    if json:
        sys.stdout.write(
            jsonlib.dumps([dict(zip(("ok", "what", "say"), check, strict=True)) for check in checks]) + "\n"
        )
        return
    for ok, what, say in checks:
        sys.stdout.write(f"{'ok     ' if ok else 'absent '} {what:14} {say}\n")


def _catalogue() -> list[tuple[bool, str, str]]:
    """Load every operator and device file, so that a broken one shows here."""
    from nearpeak.errors import NearpeakError
    from nearpeak.ops import OPS
    from nearpeak.targets import TARGETS, target_of

    checks = []
    for what, names, load in (("operators", OPS.names(), OPS.__getitem__), ("targets", TARGETS.names(), target_of)):
        broken = []
        for name in names:
            try:
                load(name)
            except NearpeakError as error:
                broken.append(str(error))
        checks.append((not broken, what, "; ".join(broken) or f"{len(names)} load"))
    return checks


def _roofs() -> tuple[bool, str, str]:
    from nearpeak.errors import NearpeakError
    from nearpeak.targets import CPU, target_of

    try:
        return True, "cpu roofs", target_of(CPU).title
    except NearpeakError as error:
        return False, "cpu roofs", str(error)


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
