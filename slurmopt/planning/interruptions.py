"""When to save, and how long a training takes that fails and restarts. All times in seconds.

C: what a save blocks the training for. R: from a failure to the first new step, the wait in the queue included. M: the
mean time between failures of the whole job. Failures are independent of each other and of the time; a spot market's are
not: replay a trace of it.
"""

from __future__ import annotations

import math

_CLOSE = 1e-14


def young(blocked: float, mtbf: float) -> float:
    """√(2CM), the first-order optimum of the training between two saves (Young, CACM 17, 1974)."""
    return math.sqrt(2 * blocked * mtbf)


def daly(blocked: float, mtbf: float) -> float:
    """The optimal seconds of training between two saves, to higher order.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
    Computer Systems 22 (2006), 303-312: with δ = `blocked` and M = `mtbf`, √(2δM)·[1 + ⅓·√(δ/2M) + ⅑·(δ/2M)] - δ for
    δ < 2M, else M. δ is only the time that blocks the training, not that of the asynchronous part of a save.
    """
    if blocked >= 2 * mtbf:
        return mtbf
    ratio = blocked / (2 * mtbf)
    return math.sqrt(2 * blocked * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - blocked


def optimum(blocked: float, mtbf: float) -> float:
    """The exact optimum of `expected_seconds`: M·(1 + W(-e^(-1 - C/M))), W the main branch of Lambert's function."""
    if blocked <= 0:
        return 0.0
    return mtbf * (1 + _lambert(-math.exp(-1 - blocked / mtbf)))


def expected_seconds(
    work: float, interval: float | None, blocked: float, restart: float, mtbf: float, drain: float = 0.0
) -> float:
    """The expected time of `work` seconds of training with a save each `interval` seconds of it; None: without saves.

    M·e^(R/M)·(e^((τ + C)/M) - 1)·W/τ (Daly 2006, equation 20). `drain`: seconds in which a save in the background is
    not safe yet; a failure loses that save's work too, so that each segment is longer by it for failures.
    """
    if interval is None:
        return _capped((mtbf + restart) * _expm1(work / mtbf))
    segments = work / interval
    each = mtbf * math.exp(min(restart / mtbf, 700.0)) * _expm1((interval + blocked + drain) / mtbf)
    # The drain is no time of its own where nothing fails: it goes on beside the training.
    return _capped(segments * max(interval + blocked, each - drain))


def _expm1(value: float) -> float:
    return math.expm1(min(value, 700.0))


def _capped(value: float) -> float:
    return min(value, 1e300)


def _lambert(z: float) -> float:
    """W₀(z) for -1/e ≤ z ≤ 0 by Halley's method, from its expansion at the branch point."""
    p = math.sqrt(max(0.0, 2 * (math.e * z + 1)))
    w = -1 + p - p * p / 3 + 11 * p**3 / 72
    for _ in range(50):
        error = w * math.exp(w) - z
        slope = math.exp(w) * (w + 1)
        if slope == 0:
            return w
        step = error / (slope - (w + 2) * error / (2 * w + 2))
        w -= step
        if abs(step) < _CLOSE:
            break
    return w
