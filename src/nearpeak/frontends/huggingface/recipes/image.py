"""Input recipe for images: pixel planes, or packed patches with their grid."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_SIZE = ("image_size", "img_size", "input_size", "pretrain_image_size")
_CHANNELS = ("num_channels", "in_channels", "in_chans", "num_input_channels", "image_channels")
_GRIDS = ("image_grid_thw", "grid_thw")
_DEFAULT_SIZE, _GRID = 224, 8


def size(ask: Ask) -> tuple[int, int]:
    """Return height and width of an image in pixels."""
    stated = ask.setting(*_SIZE, kind="image", default=_DEFAULT_SIZE)
    if isinstance(stated, dict):
        stated = (stated.get("height", _DEFAULT_SIZE), stated.get("width", _DEFAULT_SIZE))
    return (stated, stated) if isinstance(stated, int) else (int(stated[0]), int(stated[-1]))


def channels(ask: Ask) -> int:
    """Return the number of colours."""
    return int(ask.setting(*_CHANNELS, kind="image", default=3))


def patch_extents(ask: Ask, kind: str = "image") -> tuple[int, int, int]:
    """Return frames, height and width of one patch."""
    patch = ask.setting("patch_size", "spatial_patch_size", kind=kind, default=16)
    height, width = (patch, patch) if isinstance(patch, int) else (int(patch[-2]), int(patch[-1]))
    return int(ask.setting("temporal_patch_size", "patch_temporal", kind=kind, default=1)), height, width


def grid(ask: Ask, frames: int = 1) -> Any:
    """Return (batch, 3): frames, rows and columns of patches of each image."""
    merge = ask.setting("spatial_merge_size", kind="image", default=2)
    side = _GRID * (merge if isinstance(merge, int) else 1)
    return ask.whole([[frames, side, side]] * ask.batch)


def packed(ask: Ask, cells: Any, kind: str = "image") -> Any:
    """Return the patches of all images in a row: (patches, values), or with extents where a patch stays a picture."""
    frames, height, width = patch_extents(ask, kind)
    count = sum(t * h * w for t, h, w in cells.tolist())
    shape = (channels(ask), height, width)
    layout = ask.hints.get("patch_layout")
    if layout == "merged pictures":  # the grid counts squares of patches, which stay together with the colours last
        merge = int(ask.setting("spatial_merge_size", kind="image", default=2))
        return ask.floats(count, merge * height, merge * width, shape[0])
    if layout:
        return ask.floats(*([1] if layout == "row of pictures" else []), count, *shape)
    return ask.floats(count, frames * shape[0] * height * width)


def pixel_values(ask: Ask) -> Any:
    """Return pixels in the layout that the other inputs of the model tell.

    (patches, values) beside a grid; (batch, patches, values) beside the extents of the images in patches; (batch,
    images, colours, height, width) beside a mask of pixels or for models that cut an image into tiles; else (batch,
    colours, height, width).
    """
    for name in _GRIDS:
        if name in ask.parameters:
            return packed(ask, ask.given(name))
    if "spatial_shapes" in ask.parameters:
        rows, columns = ask.given("spatial_shapes").tolist()[0]
        _, height, width = patch_extents(ask)
        return ask.floats(ask.batch, rows * columns, channels(ask) * height * width)
    tiled = "pixel_attention_mask" in ask.parameters or _pinpoints(ask) or ask.hints.get("tiled")
    tiles = (tile_count(ask),) if tiled else ()
    return ask.floats(ask.batch, *tiles, channels(ask), *size(ask))


def tile_count(ask: Ask) -> int:
    """Return how many pictures an image is handed over as: one, or a whole view and the tiles that fit it best."""
    pinpoints = _pinpoints(ask)
    if not pinpoints:
        return int(ask.hints.get("images", 1))
    from transformers.image_processing_utils import select_best_resolution

    side = size(ask)[0]
    height, width = select_best_resolution((2 * side, 2 * side), pinpoints)
    return 1 + -(-int(height) // side) * -(-int(width) // side)


def _pinpoints(ask: Ask) -> Any:
    return "image_sizes" in ask.parameters and ask.setting("image_grid_pinpoints")


def image_sizes(ask: Ask) -> Any:
    """Return (batch, 2): height and width of the original images in pixels, where the model cannot do without."""
    if not (_pinpoints(ask) or "image_sizes" in ask.needed("image") or ask.model_type == "pixtral"):
        return None
    height, width = size(ask)
    scale = 2 if _pinpoints(ask) else 1
    return ask.whole([[height * scale, width * scale]] * ask.batch)


def spatial_shapes(ask: Ask) -> Any:
    """Return (batch, 2): rows and columns of patches of each image."""
    return ask.whole([[2 * _GRID, 2 * _GRID]] * ask.batch)


def pixel_attention_mask(ask: Ask) -> Any:
    """Return (batch, patches) of ones where the patches come in a row; no mask otherwise, as all pixels count."""
    if "spatial_shapes" in ask.parameters:
        return ask.filled(*ask.given("pixel_values").shape[:2])
    return None


def pixel_mask(ask: Ask) -> Any:
    """Return (batch, height, width) of ones beside text: no pixel is padding."""
    if "input_ids" not in ask.parameters or ask.given("pixel_values") is None:
        return None
    return ask.filled(ask.batch, *ask.given("pixel_values").shape[-2:])


RECIPE = Recipe(gives={
    "pixel_values": pixel_values, "image_grid_thw": grid, "grid_thw": grid, "image_sizes": image_sizes,
    "spatial_shapes": spatial_shapes, "pixel_attention_mask": pixel_attention_mask,
    "pixel_mask": pixel_mask,
})  # fmt: skip
