"""Input recipe for video object tracking: an inference session with frames, a point prompt and memory."""

from typing import Any, get_type_hints

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import size

FRAME_COUNT = 2
"""Frames of a session: one that is done, and the one that the step works on."""
_OBJECT = 1


def session(ask: Ask) -> Any:
    """Return a session whose first frame, with a point on one object, is done: the second looks back at it."""
    import torch

    height, width = size(ask)
    kind = get_type_hints(type(ask.model).forward)["inference_session"]
    made = kind(
        video=ask.floats(FRAME_COUNT, 3, height, width), video_height=height, video_width=width, dtype=ask.model.dtype
    )
    place = made.obj_id_to_idx(_OBJECT)
    point = {"point_coords": ask.floats(1, 1, 1, 2), "point_labels": ask.filled(1, 1, 1)}
    made.add_point_inputs(place, 0, point)
    made.obj_with_new_inputs = [_OBJECT]
    with torch.no_grad():
        ask.model.eval()(made, frame_idx=0)
    name_memory(ask, made)
    return made


def name_memory(ask: Ask, made: Any) -> None:
    """Name the frames of a session, and what it remembers of the first one."""
    import torch

    ask.named += [(frame, "input", "video") for frame in made.processed_frames.values()]  # views of one storage
    for held in made.output_dict_per_obj.values():
        for frame, seen in held["cond_frame_outputs"].items():
            ask.named += [
                (tensor, "kv_cache", f"memory.{frame}.{name}")
                for name, tensor in seen.items()
                if torch.is_tensor(tensor)
            ]


RECIPE = Recipe(
    gives={"inference_session": session, "frame_idx": lambda _: 1},
    model_types=frozenset({"sam2_video", "edgetam_video", "sam3_tracker_video"}),
)
