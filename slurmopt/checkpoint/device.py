"""Synchronizes with the accelerator that the training uses."""

from __future__ import annotations

import torch


def wait_for_queued_work() -> None:
    """Waits until the current accelerator has finished its queued work; returns at once where none is in use."""
    accelerator = torch.accelerator.current_accelerator()  # that of this build of torch; it may be absent or unused
    if accelerator is None:
        return
    device = torch.get_device_module(accelerator)
    is_used = getattr(device, "is_initialized", lambda: True)()  # otherwise the call would create a context
    if is_used and hasattr(device, "synchronize"):
        device.synchronize()
