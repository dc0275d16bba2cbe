"""What an existing batch script says, as an experiment: text in, config and remarks out. Nothing of it is executed."""
