"""What a launch says on standard error without refusing anything: prices, short time limits, secrets, variables."""
