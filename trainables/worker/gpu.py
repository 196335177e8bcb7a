"""How much of a GPU a training takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def gpu_memory(device: torch.device) -> tuple[int, int] | None:
    """(peak, total) bytes of the GPU, for a training that has it to itself: the most that torch
    reserved, plus what CUDA itself uses. None on a CPU."""
    import torch

    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    besides = max(0, total - free - torch.cuda.memory_reserved(device))
    return torch.cuda.max_memory_reserved(device) + besides, total
