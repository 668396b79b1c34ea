"""Write the ready-made suites: `python -m benchmarks.ready_suites [name …]`; all when none is named."""

import sys
from importlib.resources import files
from pathlib import Path

from nearpeak.api import questions, suite_construction
from nearpeak.core.answers.suite import Suite
from nearpeak.suites.suite_file import save_text

HERE = Path(__file__).parent
FOLDER = Path(str(files("nearpeak.suites"))) / "ready"
_DLRM = str(HERE / "dlrm_dcnv2.py")
_ONE_PROMPT = {"batch": 1, "sequence": 2048, "dtype": "bf16"}

MODELS = {
    "image_classification": [
        *((name, {"batch": 32, "dtype": "fp16"}) for name in (
            "resnet-50", "mobilenet-v2", "efficientnet-b0", "convnext-tiny", "vit-base-16", "swin-tiny",
        )),
        ("resnet-50", {"batch": 64, "dtype": "fp16", "step": "train"}),
    ],
    "speech_recognition": [
        ("whisper-small", {"batch": 8, "dtype": "fp16"}),
        ("whisper-large-v3", {"batch": 1, "dtype": "fp16"}),
        ("wav2vec2-base", {"batch": 8, "dtype": "fp16"}),
    ],
    "natural_language": [
        ("bert-large", {"batch": 32, "sequence": 384, "dtype": "fp16"}),
        ("roberta-base", {"batch": 32, "sequence": 512, "dtype": "fp16"}),
        ("modernbert-base", {"batch": 32, "sequence": 512, "dtype": "bf16"}),
        ("t5-base", {"batch": 16, "sequence": 512, "dtype": "bf16"}),
    ],
    "llm_inference": [
        ("llama-3-8b", _ONE_PROMPT),
        ("llama-3-8b", {"step": "decode", "batch": 32, "kv": 2048, "dtype": "bf16"}),
        ("qwen3-30b-a3b", _ONE_PROMPT),
        ("qwen3-30b-a3b", {"step": "decode", "batch": 64, "kv": 4096, "dtype": "bf16"}),
    ],
    "llm_training": [
        ("llama-3.2-1b", {"step": "train", "batch": 4, "sequence": 2048, "dtype": "bf16"}),
        ("gpt2", {"step": "train", "batch": 8, "sequence": 1024, "dtype": "bf16"}),
        ("mistral-7b", {"step": "train", "batch": 1, "sequence": 4096, "dtype": "bf16"}),
    ],
    "recommendation": [(_DLRM, {"step": "forward", "training": False}), (_DLRM, {"step": "train"})],
}  # fmt: skip
"""Models of each suite with the options of capture; steps and sizes as they are commonly served and trained."""
RULES = sorted(file.stem for file in HERE.glob("*.toml"))
"""Suites of sweeps alone."""


def built(name: str) -> Suite:
    """Return the suite called `name`: every case of its models with its counts, or every case of its sweeps."""
    if name in RULES:
        return suite_construction.suite([questions.capture(HERE / f"{name}.toml")], name=name)
    workloads = [questions.capture(model, **options) for model, options in MODELS[name]]  # type: ignore[arg-type]
    return suite_construction.suite(workloads, name=name)


def main(names: list[str]) -> None:
    """Write each suite named, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or [*MODELS, *RULES]:
        text = save_text(built(name))
        (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{name}: {text.count(chr(10)) - 1} cases, {len(text):,} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
