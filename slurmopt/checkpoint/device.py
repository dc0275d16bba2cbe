"""The accelerator that the training computes on, whoever made it."""

from __future__ import annotations

import torch


def wait_for_queued_work() -> None:
    """Returns once the training's device has done what is queued there; at once where none is in use."""
    accelerator = torch.accelerator.current_accelerator()  # of this build of torch; it may not be there, or not be used
    if accelerator is None:
        return
    device = torch.get_device_module(accelerator)
    is_used = getattr(device, "is_initialized", lambda: True)()  # else the first call would make a context
    if is_used and hasattr(device, "synchronize"):
        device.synchronize()
