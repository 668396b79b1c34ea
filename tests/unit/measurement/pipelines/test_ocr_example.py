"""The OCR example on a rendered page; needs rapidocr-onnxruntime, which brings models, and is skipped without it."""

from pathlib import Path

import pytest

FILE = Path(__file__).parents[4] / "examples" / "ocr_pipeline" / "ocr.toml"
LINES = ["the quick brown fox", "jumps over", "a lazy dog while seven lamps shine"]


def test_a_rendered_page_is_read_and_its_time_explained(tmp_path):
    cv2 = pytest.importorskip("cv2")
    pytest.importorskip("rapidocr_onnxruntime")
    import numpy as np

    from nearpeak.api.edge.pipeline_plan import plan_pipeline
    from nearpeak.measurement.pipelines.pipeline_execution import run_pipeline
    from nearpeak.systems.edge.pipeline_file import pipeline_of
    from nearpeak.systems.edge.width_buckets import batches_of

    image = np.full((300, 800, 3), 255, np.uint8)
    for row, line in enumerate(LINES):
        cv2.putText(image, line, (30, 60 + 90 * row), cv2.FONT_HERSHEY_SIMPLEX, 1.1, (0, 0, 0), 2, cv2.LINE_AA)
    page = tmp_path / "page.png"
    cv2.imwrite(str(page), image)
    texts = []
    for order in ("given", "sorted"):
        path = tmp_path / f"{order}.toml"
        path.write_text(FILE.read_text("utf-8").replace('"sorted"', f'"{order}"'), "utf-8")
        (tmp_path / "ocr_stages.py").write_text((FILE.parent / "ocr_stages.py").read_text("utf-8"), "utf-8")
        texts.append(run_pipeline(pipeline_of(path), tmp_path, str(page), batches_of).result)
    assert texts[0] == texts[1]
    assert [text.replace(" ", "") for text in texts[0]] == [line.replace(" ", "") for line in LINES]
    assert plan_pipeline(path, str(page), is_measured=True, rounds=2).coverage_ratio >= 0.95
