"""Inverse short-time Fourier transform for fake tensors, without PyTorch's check of values."""

from typing import Any


def istft(
    spectrum: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Any:  # fmt: skip
    """Return the signal of a spectrogram as PyTorch makes it: inverse transforms, overlap and add, division.

    Shapes: spectrum [batch, frequencies, frames] or without batch; the signal has n_fft + hop * (frames - 1) samples,
    less half a transform at either end where frames are centred.

    What PyTorch checks first, that the windows overlap everywhere, is a question about values and left out.
    """
    import torch

    batched = spectrum if spectrum.dim() == 3 else spectrum[None]
    hop = hop_length or n_fft // 4
    frames = batched.transpose(1, 2)
    norm = "ortho" if normalized else "backward"
    sided = onesided is not False and not return_complex
    inverse = torch.fft.irfft if sided else torch.fft.ifft
    parts = inverse(frames, n=n_fft, dim=-1, norm=norm)
    parts = parts if sided or return_complex else parts.real
    width = win_length or n_fft
    shape = torch.ones(width, dtype=parts.real.dtype) if window is None else window
    if width < n_fft:
        left = (n_fft - width) // 2
        shape = torch.nn.functional.pad(shape, (left, n_fft - width - left))
    whole = n_fft + hop * (frames.shape[1] - 1)
    first = n_fft // 2 if center else 0
    last = first + length if length is not None else whole - first
    signal = _added(parts * shape, whole, n_fft, hop)[:, first:last]
    envelope = _added((shape * shape).expand(1, *parts.shape[1:]), whole, n_fft, hop)[:, first:last]
    scaled = signal / envelope
    if length is not None and scaled.shape[1] < length:
        scaled = torch.nn.functional.pad(scaled, (0, length - scaled.shape[1]))
    return scaled if spectrum.dim() == 3 else scaled[0]


def _added(parts: Any, whole: int, n_fft: int, hop: int) -> Any:
    """Return the sum of overlapping frames."""
    import torch

    return torch.ops.aten.unfold_backward(parts, [parts.shape[0], whole], 1, n_fft, hop)
