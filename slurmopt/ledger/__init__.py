"""Where the allocated GPU time of a run went, and what was wasteful: values in, values out, for both sides."""
