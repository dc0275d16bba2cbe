"""The help of the board."""

from __future__ import annotations

HELP = """\
MOVE    ↑ ↓ k j    one row              PgUp PgDn  one screen
        g G        first, last          mouse      wheel, click; again: opens
LOOK    enter      details: the error first, status, metrics, attempts
        l          the log of rank 0, followed until the run ends
        e          what failed: traceback and the end of the log
        h          the attempts: causes of their ends, lost steps
CHANGE  c          cancel               r          retry; both ask first
CHOOSE  /          only rows with these words in name, ID, state, job or error
        a          only what is under way; esc shows all again
        s S        sort by the next column; backwards. Or click a head
        ctrl+r     look again now
LEAVE   q ctrl+c   end                  ctrl+z     suspend; fg comes back

STATE   pending, running, stopping (saves and stops), requeued (waits for its
        next attempt), finished, failed, killed, cancelled, unknown,
        lost (Slurm no longer knows it), gone (its folder was removed),
        … (not read yet)
DONE    steps; of a sweep (▸) its points that have ended
METRIC  a loss, else the first metric; CURVE: its values since the board opened
GPU     how busy its GPUs are, where that is measured"""
