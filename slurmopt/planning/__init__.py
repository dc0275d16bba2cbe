"""What a training will need, before it is queued: memory, time and money out of formulas. Pure: values in, values out.

Sizes are bytes, times seconds, rates bytes per second, unless a name says otherwise. Texts say GB for 10⁹ and GiB for
2³⁰ bytes. What is not known exactly is a `Range`, the two ends of a 90 % interval.
"""
