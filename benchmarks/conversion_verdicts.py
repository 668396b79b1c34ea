"""Verdicts of the TensorRT table on exports of 30 model types, checked against the parsed document by other code.

The parsed document is no part of nearpeak: `NEARPEAK_SAMPLES` names a folder whose neighbour `tuning` holds it.
"""

import contextlib
import io
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from tests.samples import SAMPLES

from benchmarks._figures import Figure
from nearpeak.conversion.capability_table import CapabilityTable, table_of
from nearpeak.conversion.engine_conversion import engine_conversion

FIGURES = ("conversion_verdicts_false", "conversion_verdicts_types", "conversion_verdicts_refused")
TYPES = (
    "bert", "roberta", "distilbert", "albert", "electra", "mpnet", "xlm-roberta", "camembert", "ernie", "gpt2", "opt",
    "gpt_neo", "gpt_neox", "gptj", "bloom", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "phi3",
    "falcon", "stablelm", "olmo", "starcoder2", "cohere", "granite", "vit", "deit", "beit", "dinov2", "swin",
    "convnext", "resnet", "regnet", "mobilenet_v1", "mobilenet_v2", "efficientnet", "segformer", "poolformer", "bit",
    "levit", "cvt", "mobilevit",
)  # fmt: skip
"""Model types, of which some do not export."""
SMALL = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "word_embed_proj_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "ffn_dim": 64, "hidden_dim": 64,
    "vocab_size": 64, "head_dim": 8, "rotary_dim": 4, "embedding_size": 32, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "attention_types": [[["global"], 2]], "n_inner": 64,
}  # fmt: skip
"""Sizes of the exports, where a type has them and is no network of stages."""
FORMATS = {1: "FP32", 10: "FP16", 16: "BF16", 6: "INT32", 7: "INT64", 9: "BOOL", 2: "UINT8", 3: "INT8"}


def measure() -> Iterator[Figure]:
    """Yield the nodes that nearpeak calls supported and the document denies, and the model types looked at."""
    rows = json.loads((SAMPLES.parent / "tuning" / "tensorrt_10_1_onnx_operators.json").read_text())["operators"]
    table, false, counts = table_of("tensorrt:10.1"), 0, Counter[str]()
    done = 0
    for name in TYPES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            if reason := _export(name, path):
                print(f"{name}: {reason}", flush=True)
                continue
            found = engine_conversion(path, table, [])
            model = onnx.shape_inference.infer_shapes(onnx.load(str(path)), data_prop=True)
            for node, judged in zip(model.graph.node, found.nodes, strict=True):
                if judged.verdict.verdict == "supported" and (why := _denied(rows, model, node)):
                    print(f"{name}: {judged.kind} {judged.key}: {why}", flush=True)
                    false += 1
        counts += Counter(found.counts())
        done += 1
        print(
            f"{name}: {dict(found.counts())}, {sum(piece.is_converted for piece in found.pieces)} engines", flush=True
        )
    print(dict(counts), flush=True)
    yield Figure(
        name="conversion_verdicts_false", value=false, unit=f"of {counts['supported']:,} nodes", bar="0",
        passed=not false,
    )  # fmt: skip
    yield Figure(name="conversion_verdicts_types", value=done, unit="model types", bar=">= 30", passed=done >= 30)
    yield _refused(table)


def _refused(table: CapabilityTable) -> Figure:
    """Return how many of the standard's own test models end without verdicts, open inputs apart."""
    from onnx.backend.test.case.node import collect_testcases

    models = [(case.name, case.model) for case in collect_testcases(None) if case.model is not None]
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models:
            path = Path(folder) / "model.onnx"
            onnx.save(model, str(path))
            try:
                engine_conversion(path, table, [])
            except Exception as error:  # whatever it is, it is counted
                if "is open in the file" not in str(error):
                    print(f"{name}: {type(error).__name__}: {error}", flush=True)
                    refused += 1
    return Figure(
        name="conversion_verdicts_refused", value=refused, unit=f"of {len(models):,} models", bar="0",
        passed=not refused,
    )  # fmt: skip


def _export(name: str, path: Path) -> str:
    """Write a small model of a type, and return why that fails; empty where it does not."""
    from transformers import AutoConfig, AutoModel

    try:
        with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            config = AutoConfig.for_model(name)
            is_text = hasattr(config, "vocab_size") and not hasattr(config, "image_size")
            for key, value in SMALL.items():
                if hasattr(config, key) and (is_text or name in ("vit", "deit", "beit", "dinov2")):
                    setattr(config, key, value)
            config.use_cache = False
            model = AutoModel.from_config(config, attn_implementation="eager").eval()
            inputs = torch.ones(1, 8, dtype=torch.long) if is_text else torch.zeros(1, 3, 224, 224)
            torch.onnx.export(_FirstResult(model, is_text), (inputs,), str(path), dynamo=False, opset_version=18)
    except Exception as error:  # of some types, the exporter or the small sizes
        return f"not exported: {str(error).splitlines()[0][:90] if str(error) else type(error).__name__}"
    return ""


class _FirstResult(torch.nn.Module):
    """A model that returns its first result."""

    def __init__(self, model: Any, is_text: bool) -> None:
        super().__init__()
        self.model, self.is_text = model, is_text

    def forward(self, x: Any) -> Any:
        return (self.model(input_ids=x, attention_mask=torch.ones_like(x)) if self.is_text else self.model(x))[0]


def _denied(rows: dict[str, Any], model: Any, node: Any) -> str:
    """Return why the document denies a node; empty where it does not, as far as these types need it."""
    row = rows.get(node.op_type)
    if row is None or not row["supported"]:
        return "not supported"
    stored = {item.name for item in model.graph.initializer}
    stored |= {name for other in model.graph.node if other.op_type == "Constant" for name in other.output}
    formats = {item.name: item.type.tensor_type.elem_type for item in (*model.graph.value_info, *model.graph.input)}
    formats |= {item.name: item.data_type for item in model.graph.initializer}
    data = node.input[1] if node.op_type == "Where" else next(iter(node.input), "")
    kind = FORMATS.get(formats.get(data, 0), "")
    if kind and node.op_type not in ("ConstantOfShape", "Range") and kind not in row["types"]:
        return f"{kind} is not listed"
    axes = {"Slice": 3, "Pad": 3, "CumSum": 1, "Squeeze": 1, "Unsqueeze": 1}.get(node.op_type)
    axes = 1 if node.op_type.startswith("Reduce") else axes
    stated = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    is_pool = node.op_type in ("MaxPool", "AveragePool")
    reasons = {
        "its axes are not stored": axes is not None
        and any(name not in stored for name in node.input[axes:][:1] if name),
        "has more than one result": node.op_type == "LayerNormalization" and any(node.output[1:]),
        "is dilated": is_pool and set(stated.get("dilations", [1])) != {1},
        "resizes otherwise": node.op_type == "Resize" and stated.get("mode", b"nearest") not in (b"nearest", b"linear"),
        "reduces": node.op_type == "ScatterND" and stated.get("reduction", b"none") != b"none",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
