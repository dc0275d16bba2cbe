"""Notifies the owner of a run of its end: by a command, a webhook, e-mail, or on the desktop."""
