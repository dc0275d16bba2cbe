"""What follows a launch: composing, checking, executing, going on with an existing run."""
