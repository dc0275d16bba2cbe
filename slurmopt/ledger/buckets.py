"""The buckets of the ledger: every allocated GPU-second of a run lies in exactly one of them."""

from __future__ import annotations

STARTUP = "start-up"
HEALTH = "health check"
STAGING = "staging"
RENDEZVOUS = "rendezvous"
RESTORE = "restore"
FIRST_STEPS = "compile and first steps"
COMPUTE = "compute"
COMMUNICATION = "exposed communication"
INPUT = "waiting for input"
CHECKPOINT = "checkpoint stall"
PHASES = "evaluation and named phases"
STALLED = "stalled"
LOST = "lost"
WIND_DOWN = "winding down"
UNUSED = "held by no rank"
UNKNOWN = "unknown"

BUCKETS = (
    COMPUTE, COMMUNICATION, INPUT, CHECKPOINT, PHASES, STARTUP, HEALTH, STAGING, RENDEZVOUS, RESTORE, FIRST_STEPS,
    STALLED, LOST, WIND_DOWN, UNUSED, UNKNOWN,
)  # fmt: skip
"""All buckets, in the order in which they are printed."""

OF_ACTIVITY = {
    "starting": STARTUP,
    "checking": HEALTH,
    "staging": STAGING,
    "importing": STARTUP,
    "waiting": RENDEZVOUS,
    "first step": FIRST_STEPS,
    "compiling": FIRST_STEPS,
    "running": COMPUTE,
    "communication": COMMUNICATION,
    "input": INPUT,
    "checkpoint": CHECKPOINT,
    "restoring": RESTORE,
    "saving": WIND_DOWN,
    "ended": WIND_DOWN,
}
"""What a rank does (an activity of its heartbeat's `spent`) → its bucket; other names are phases of the training."""


def bucket_of(activity: str) -> str:
    """The bucket of an activity."""
    return OF_ACTIVITY.get(activity, PHASES)
