"""Input recipe for video object tracking: an inference session with frames, a point prompt and memory."""

from typing import Any, get_type_hints

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import size

_OBJECT, _FRAMES = 1, 2


def session(ask: Ask) -> Any:
    """Return a session whose first frame, with a point on one object, is done: the second looks back at it."""
    import torch

    height, width = size(ask)
    kind = get_type_hints(type(ask.model).forward)["inference_session"]
    made = kind(
        video=ask.floats(_FRAMES, 3, height, width), video_height=height, video_width=width, dtype=ask.model.dtype
    )
    place = made.obj_id_to_idx(_OBJECT)
    point = {"point_coords": ask.floats(1, 1, 1, 2), "point_labels": ask.filled(1, 1, 1)}
    made.add_point_inputs(place, 0, point)
    made.obj_with_new_inputs = [_OBJECT]
    with torch.no_grad():
        ask.model.eval()(made, frame_idx=0)
    ask.named += [(frame, "input", "video") for frame in made.processed_frames.values()]  # views of one storage
    for frame, seen in made.output_dict_per_obj[place]["cond_frame_outputs"].items():
        ask.named += [
            (tensor, "kv_cache", f"memory.{frame}.{name}") for name, tensor in seen.items() if torch.is_tensor(tensor)
        ]
    return made


RECIPE = Recipe(
    gives={"inference_session": session, "frame_idx": lambda _: 1},
    model_types=frozenset({"sam2_video", "edgetam_video", "sam3_tracker_video"}),
)
