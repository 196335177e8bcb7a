"""The GPU memory that a training run uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def gpu_memory(device: torch.device) -> tuple[int, int] | None:
    """(peak, total) bytes of the GPU's memory, for a training run that has the GPU to itself. The
    peak is the most that torch reserved, plus what CUDA itself uses. None on a CPU."""
    import torch

    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    besides = max(0, total - free - torch.cuda.memory_reserved(device))
    return torch.cuda.max_memory_reserved(device) + besides, total
