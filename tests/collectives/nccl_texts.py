"""Outputs of nccl-tests. SIMULATED: the layout is that of the program's source (`src/util.cu` of NVIDIA/nccl-tests, and
of `src/all_gather.cu` and `src/common.cu` before 2.9), the numbers are made up so that bandwidths fit the times."""

ALL_REDUCE = """\
# nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 4 minBytes 1048576 maxBytes 16777216 step: 4(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on     gpu-01 device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4711 on     gpu-01 device  1 [0000:2a:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   4712 on     gpu-02 device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   4712 on     gpu-02 device  1 [0000:2a:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
     1048576        262144     float     sum      -1    52.40   20.01   30.02       0    51.20   20.48   30.72       0
     4194304       1048576     float     sum      -1    84.10   49.87   74.81       0    83.90   49.99   74.99       0
    16777216       4194304     float     sum      -1    210.0   79.89  119.84       3    208.0   80.66  120.99       0
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 75.2288 
#
# Collective test concluded: all_reduce_perf
"""  # noqa: E501, W291

EARLIER_ALL_GATHER = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20 validation: 1 
#
# Using devices
#   Rank  0 Pid   9031 on     gpu-07 device  0 [0x07] Tesla V100-SXM2-16GB
#   Rank  1 Pid   9031 on     gpu-07 device  1 [0x0a] Tesla V100-SXM2-16GB
#
#                                             out-of-place                       in-place          
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
     1048576        131072   float    40.00   26.21   13.11  0e+00    39.50   26.55   13.27  0e+00
     4194304        524288   float   100.00   41.94   20.97  0e+00    99.10   42.32   21.16  0e+00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 17.1275 
#
"""  # noqa: W291

FAILS = """\
# nThread 1 nGpus 8 minBytes 1024 maxBytes 1024 step: 1048576(bytes) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
gpu-01: Test CUDA failure common.cu:892 'no CUDA-capable device is detected'
 .. gpu-01 pid 4711: Test failure common.cu:842
"""  # noqa: E501
