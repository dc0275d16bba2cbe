"""From overrides to a plan: composes, checks, and submits it or prints its script; also the plan of a retry."""
