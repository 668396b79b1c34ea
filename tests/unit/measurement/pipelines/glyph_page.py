"""A page of bit-map letters and a recogniser of it, made here: crops of lines and a model of matched filters."""

from pathlib import Path

import numpy as np

GLYPHS = {
    "a": "01110 10001 10001 11111 10001 10001 10001", "b": "11110 10001 10001 11110 10001 10001 11110",
    "c": "01111 10000 10000 10000 10000 10000 01111", "d": "11110 10001 10001 10001 10001 10001 11110",
    "e": "11111 10000 10000 11110 10000 10000 11111", "f": "11111 10000 10000 11110 10000 10000 10000",
}  # fmt: skip
SYMBOLS = "".join(GLYPHS)
WIDE, HIGH = 5, 7
PITCH = WIDE + 2


def glyph(name):
    """Return a letter [HIGH, WIDE] of zeros and ones."""
    return np.array([[int(bit) for bit in row] for row in GLYPHS[name].split()], np.float32)


def page_of(lines, noise=0.05, seed=0):
    """Return a page [height, width] with lines of text at known rows, a little noisy."""
    draw = np.random.default_rng(seed)
    page = np.zeros((len(lines) * (HIGH + 5) + 5, max(map(len, lines)) * PITCH + 8), np.float32)
    for row, line in enumerate(lines):
        for column, name in enumerate(line):
            top, left = 5 + row * (HIGH + 5), 4 + column * PITCH
            page[top : top + HIGH, left : left + WIDE] = glyph(name)
    return page + draw.uniform(0, noise, page.shape).astype(np.float32)


def recogniser(path):
    """Write a model [b, 1, HIGH, w] → [b, w - WIDE + 1, symbols + 1]: matched filters against a threshold; blank last.

    A filter has +1 on ink and -1 elsewhere, so that only the whole letter in place reaches its ink less half a point.
    """
    import onnx
    from onnx import TensorProto, helper

    kernels = np.stack([2 * glyph(name) - 1 for name in SYMBOLS])[:, None]
    ink = np.array([glyph(name).sum() for name in SYMBOLS], np.float32)
    weight = np.concatenate([kernels, np.zeros((1, 1, HIGH, WIDE))]).astype(np.float32)
    bias = np.concatenate([-(ink - 1.5), [0.0]]).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "weight", "bias"], ["scores"]),
        helper.make_node("Squeeze", ["scores", "axis"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["y"], perm=[0, 2, 1]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "recogniser", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 1, HIGH, "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "t", len(SYMBOLS) + 1])],
        [
            onnx.numpy_helper.from_array(weight, "weight"), onnx.numpy_helper.from_array(bias, "bias"),
            onnx.numpy_helper.from_array(np.array([2]), "axis"),
        ],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    Path(path).write_bytes(model.SerializeToString())


STAGES = '''
import numpy as np
import nearpeak


def load(path):
    return np.load(path)


def boxes(page):
    """Return top, bottom, left and right of each line of ink."""
    with nearpeak.stage("rows"):
        ink = page > 0.5
        rows = np.flatnonzero(np.diff(np.concatenate([[0], ink.any(axis=1), [0]]).astype(int)))
    found = []
    for top, bottom in zip(rows[::2], rows[1::2]):
        columns = np.flatnonzero(ink[top:bottom].any(axis=0))
        found.append((int(top), int(bottom), int(columns[0]), int(columns[-1]) + 1))
    return found


def crops(page, found):
    return [page[None, top:bottom, max(left - 1, 0):right + 1] for top, bottom, left, right in found]


def decode(scores):
    """Return the text of one line: best symbol of each step, collapsed, without blanks."""
    best, text = scores.argmax(axis=-1), ""
    for step, symbol in enumerate(best):
        if symbol != scores.shape[-1] - 1 and (step == 0 or symbol != best[step - 1]):
            text += "SYMBOLS"[symbol]
    return text
'''
PIPELINE = """
name = "glyphs"
input = "page.npy"
[[stage]]
name = "load"
call = "glyph_stages.py:load"
[[stage]]
name = "detect"
call = "glyph_stages.py:boxes"
[[stage]]
name = "crop"
call = "glyph_stages.py:crops"
inputs = ["load", "detect"]
[[stage]]
name = "recognise"
model = "rec.onnx"
batch = 3
buckets = "given"
[[stage]]
name = "decode"
call = "glyph_stages.py:decode"
each = true
"""


def write_pipeline(folder, lines, *, order="given", seed=0):
    """Write page, model, functions and pipeline file; return the path of the last."""
    np.save(folder / "page.npy", page_of(lines, seed=seed))
    recogniser(folder / "rec.onnx")
    (folder / "glyph_stages.py").write_text(STAGES.replace("SYMBOLS", SYMBOLS), "utf-8")
    path = folder / "ocr.toml"
    path.write_text(PIPELINE.replace('"given"', f'"{order}"'), "utf-8")
    return path
