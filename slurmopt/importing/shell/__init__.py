"""What a batch script says in the language of the shell, as far as it is known without running it."""
