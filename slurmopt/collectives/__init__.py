"""What a benchmark of collectives measures, records and concludes; pure, for both sides."""
