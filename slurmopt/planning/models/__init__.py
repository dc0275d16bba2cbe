"""The shapes of models: a transformer's, out of the config file of transformers, and those of public families."""
