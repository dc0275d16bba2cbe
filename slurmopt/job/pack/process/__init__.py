"""The forked processes of points: how they start, and what they use."""
