"""What may go wrong, and the exit code each kind ends with."""


class ClusterError(Exception):
    """The cluster did not do what was asked; the message is all that the user needs to read."""

    exit_code = 1


class UsageError(ClusterError):
    """The command could not have worked as it was called, or on this machine as it is."""

    exit_code = 2
