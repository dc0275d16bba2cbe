"""The time of a step: matrix products, traffic of memory, collectives, pipelines; and how it scales with nodes."""
