"""What a real Slurm 22.05 printed for a cluster of five unlike nodes; long lines shortened where nothing reads them."""

from __future__ import annotations

from slurmopt.slurm.cluster.cluster_facts import ClusterFacts
from slurmopt.slurm.cluster.parse_facts import cluster_facts

CONFIG = """\
Configuration data as of 2026-11-21T12:05:46
AccountingStorageEnforce = associations,limits,qos
AccountingStorageTRES   = cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = mini
JobRequeue              = 1
MaxArraySize            = 1001
SlurmctldHost[0]        = head1(10.0.0.1)
SlurmctldHost[1]        = head2
SlurmctldParameters     = (null)
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at head1 is UP
"""
PARTITIONS = """\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=01:00:00 MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 Nodes=cpu1,gpu-[01-03] OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=128 TRES=cpu=128,mem=900000M,node=4
PartitionName=short AllowGroups=ALL AllowAccounts=ALL AllowQos=normal AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE MaxNodes=1 MaxTime=00:10:00 MinNodes=0 Nodes=gpu-[01-02] State=UP TotalCPUs=32
PartitionName=closed AllowGroups=ALL AllowAccounts=secret AllowQos=ALL Default=NO QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=cpu1 State=DOWN MaxMemPerNode=5000
PartitionName=free AllowGroups=ALL DenyAccounts=guest AllowQos=ALL Default=NO QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=cpu[1-2],gpu-[01-03] State=UP
PartitionName=empty AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=(null) State=UP TRES=(null)
"""  # noqa: E501
NODES = """\
main|1|64|400000|mixed|cpu1|(null)
main|1|16|200000|down*|gpu-02|gpu:h100:8(S:0-1)
main|1|16|200000|idle|gpu-01|gpu:h100:8(S:0-1)
main|1|32|100000|idle~|gpu-03|gpu:a100:4(S:0,1),gpu:t4:1
short|1|16|200000|idle|gpu-01|gpu:h100:8(S:0-1)
short|1|16|200000|down*|gpu-02|gpu:h100:8(S:0-1)
closed|1|64|400000|mixed|cpu1|(null)
free|1|64|400000|mixed|cpu1|(null)
free|1|8|10000|drained|cpu2|(null)
free|1|16|200000|idle|gpu-01|gpu:h100:8(S:0-1)
free|1|16|200000|down*|gpu-02|gpu:h100:8(S:0-1)
free|1|32|100000|idle~|gpu-03|gpu:a100:4(S:0,1),gpu:t4:1
empty|0|0|0|n/a||(null)
"""
ACCOUNTS = """\
mini|team|normal
mini|other|big,normal
elsewhere|third|normal
"""


def mini() -> ClusterFacts:
    """The facts of that cluster."""
    return cluster_facts(CONFIG, PARTITIONS, NODES, ACCOUNTS)
