"""Loads NVML through nvidia-ml-py, and tells a missing value's reason in the words of a series."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from typing import Any

from slurmopt.errors import SlurmoptError, one_line
from slurmopt.run_folder.series.series import NOT_ALLOWED, NOT_MEASURED, NOT_SUPPORTED

INVALID_ARGUMENT, NOT_FOUND, TIMEOUT, GPU_IS_LOST = 2, 6, 10, 15
"""Return codes of NVML."""
MEMORY_V2 = 0x02000028  # nvmlMemory_v2
_UNSUPPORTED = {3, 13, 25, 26}  # not supported, function not found, version of an argument unknown, deprecated
_FORBIDDEN = {4}
_PACKAGE = "nvidia-ml-py (pip install 'slurmopt[gpu]')"


class NoValue(SlurmoptError):
    """NVML has no value. `reason`: one of ABSENT of the format of a series; `code`: NVML's, if it gave one."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class NvmlUnusableError(SlurmoptError):
    """NVML is not there, or does not start. The message is one line for the user."""


def reason_of(code: int) -> str:
    """Why there is no value, by NVML's return code."""
    if code in _UNSUPPORTED:
        return NOT_SUPPORTED
    return NOT_ALLOWED if code in _FORBIDDEN else NOT_MEASURED


class Library:
    """NVML, started. It stays so for the life of the process: without persistence mode each start wakes the GPUs."""

    def __init__(self, module: Any) -> None:
        self.module = module
        mismatch = getattr(module, "NVMLLibraryMismatchError", module.NVMLError)
        self._errors = (module.NVMLError, mismatch)
        self.on_call: Callable[[str, float, str], None] | None = None
        """Called after each call with its name, its duration in seconds, and "" or why it has no value."""
        self._gpm: Any = None
        self.driver = _text(self, "nvmlSystemGetDriverVersion")
        """The version of the driver, such as 580.82.07; empty where it is not told."""

    def ask(self, function: str, *arguments: Any) -> Any:
        """What the function returns. NoValue where it fails, or where this version does not have it."""
        started, why = time.perf_counter(), ""
        try:
            return getattr(self.module, function)(*arguments)
        except self._errors as error:
            missing = no_value(error)
            why = missing.reason
            raise missing from None
        except (AttributeError, TypeError):  # an nvidia-ml-py that is older than the function, or than an argument
            why = NOT_SUPPORTED
            raise NoValue(NOT_SUPPORTED) from None
        finally:
            if self.on_call is not None:
                self.on_call(function, time.perf_counter() - started, why)

    def first(self, *calls: tuple[Any, ...]) -> Any:
        """What the first of the calls (function, arguments…) returns that this GPU and driver support."""
        for number, (function, *arguments) in enumerate(calls, 1):
            try:
                return self.ask(function, *arguments)
            except NoValue as missing:
                if number == len(calls) or missing.reason != NOT_SUPPORTED:
                    raise
        raise NoValue(NOT_SUPPORTED)

    def gpm_request(self) -> Any:
        """An empty request for metrics of GPM. NoValue where this nvidia-ml-py has none."""
        if self._gpm is None:
            try:
                self._gpm = self.module.c_nvmlGpmMetricsGet_t()
            except AttributeError:
                raise NoValue(NOT_SUPPORTED) from None
            self._gpm.version = 1  # NVML_GPM_METRICS_GET_VERSION
        return self._gpm

    def said(self, code: int | None) -> str:
        """NVML's own words for a return code."""
        return "unknown error" if code is None else one_line(str(self.module.NVMLError(code)))

    def driver_at_least(self, *version: int) -> bool:
        """Whether the driver has that version or a newer one; False where its version is not known."""
        parts = [int(part) for part in self.driver.split(".") if part.isdigit()]
        return bool(parts) and tuple(parts[: len(version)]) >= version

    def stop(self) -> None:
        with contextlib.suppress(NoValue):
            self.ask("nvmlShutdown")


def no_value(error: Exception) -> NoValue:
    """The reason of an error that nvidia-ml-py raised."""
    code = getattr(error, "value", None)
    return NoValue(reason_of(code), code) if isinstance(code, int) else NoValue(NOT_SUPPORTED)


def load() -> Library:
    """NVML, started. NvmlUnusableError says in one line what is in the way."""
    module = _module()
    try:
        module.nvmlInit()
    except Exception as error:
        if not isinstance(error, module.NVMLError):
            raise
        raise NvmlUnusableError(f"GPUs are not measured: NVML does not start: {_advice(error)}") from None
    return Library(module)


def _module() -> Any:
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        raise NvmlUnusableError(f"GPUs are not measured: this Python does not have {_PACKAGE}") from None
    except Exception as error:  # noqa: BLE001 - whatever a foreign module of that name does
        said = one_line(f"{type(error).__name__}: {error}")
        raise NvmlUnusableError(f"GPUs are not measured: the module pynvml cannot be imported: {said}") from None
    if not hasattr(module, "nvmlInit") or not hasattr(module, "NVMLError"):
        place = one_line(str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "?")))
        raise NvmlUnusableError(
            f"GPUs are not measured: the module pynvml in {place} is another one: it has no nvmlInit. Remove or rename "
            f"it; valid is that of {_PACKAGE}"
        )
    return module


def _advice(error: Exception) -> str:
    said = one_line(str(error))
    hints = {
        4: "this user may not open /dev/nvidia*",
        9: "load the driver, or check that the job was given GPUs",
        12: "there is no libnvidia-ml.so.1; it comes with the driver, and into a container with its --nv or --gpus",
        13: "the libnvidia-ml.so.1 of this node is incomplete or far too old",
        18: "the driver was updated without a reboot, or a container has another version's library",
    }
    hint = hints.get(getattr(error, "value", 0))
    return f"{said}: {hint}" if hint else said


def _text(library: Library, function: str) -> str:
    try:
        value = library.ask(function)
    except NoValue:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
