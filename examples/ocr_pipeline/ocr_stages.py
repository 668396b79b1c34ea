"""Stages around the models of an OCR page: load, detector input and boxes, crops, and text of each line."""

from typing import Any

import cv2
import numpy as np
from rapidocr_onnxruntime import RapidOCR

import nearpeak

HEIGHT = 48
"""Rows of a crop, as the recogniser takes them."""
ENGINE = RapidOCR(intra_op_num_threads=1)
"""The package's engine, whose functions around the models are taken."""


def load(path: str) -> Any:
    """Return the image of a file, [height, width, 3]."""
    image = cv2.imread(path)
    if image is None:
        raise ValueError(f"{path}: is no image")
    return image


def prepare(image: Any) -> Any:
    """Return the detector's input, [1, 3, height, width] with sides that are multiples of 32."""
    return ENGINE.text_det.get_preprocess(max(image.shape[:2]))(image)


def boxes(image: Any, scores: Any) -> Any:
    """Return the corners of each line of text, top to bottom."""
    detector, size = ENGINE.text_det, image.shape[:2]
    with nearpeak.stage("contours"):
        corners, _ = detector.postprocess_op(scores, size)
    return ENGINE.sorted_boxes(detector.filter_tag_det_res(corners, size))


def crops(image: Any, corners: Any) -> list[Any]:
    """Return each line as the recogniser takes it, [3, 48, width]."""
    with nearpeak.stage("warp"):
        images = ENGINE.get_crop_img_list(image, corners)
    return [_normalised(image) for image in images]


def _normalised(image: Any) -> Any:
    width = max(round(HEIGHT * image.shape[1] / image.shape[0]), 1)
    resized = cv2.resize(image, (width, HEIGHT)).astype(np.float32).transpose(2, 0, 1)
    return resized / 127.5 - 1


def decode(scores: Any) -> str:
    """Return the text of one line."""
    (text, _), *_ = ENGINE.text_rec.postprocess_op(scores[None])
    return text
