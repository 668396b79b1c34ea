"""Record two steps of a small model with torch.profiler, as `nearpeak analyze` reads them."""

import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def main(path: str) -> None:
    """Train a small network for a few steps and write the trace of the last ones to `path`."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(
        activities=activities, record_shapes=True, schedule=schedule(wait=1, warmup=1, active=3),
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(path),
    ) as profiler:  # fmt: skip
        for _ in range(5):
            with record_function("train_step"):
                loss = model(torch.randn(256, 512, device=device)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            profiler.step()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "trace.json")
