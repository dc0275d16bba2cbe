"""The attempts of a run in time: when, where, why each ended, what that cost."""
