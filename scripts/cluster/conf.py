"""The text of the configuration files."""

import socket

from cluster.layout import Layout
from cluster.settings import Settings

DATABASE = "slurm_accounting"
MEMORY_MB = 200000
CPUS = 16

SLURM_CONF = """\
ClusterName=private
{plugins}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={munge_socket},cred_expire=5
StateSaveLocation={state}
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/%n.pid
SlurmctldLogFile={logs}/slurmctld.log
SlurmdLogFile={logs}/%n.log
SwitchType=switch/none
MpiDefault=none
{tracking}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={memory_per_cpu}
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=10
MessageTimeout=10
KillWait=5
MinJobAge=300
InactiveLimit=0
JobRequeue=1
MaxArraySize={max_array_size}
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=100000
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
{accounting}
GresTypes=gpu
NodeName={nodes} NodeHostname=localhost NodeAddr=127.0.0.1 Port={node_ports} CPUs={cpus} \
SocketsPerBoard=2 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory={memory}{gres} State=UNKNOWN
PartitionName=main Nodes={nodes} Default=YES MaxTime=1-00:00:00 DefaultTime=01:00:00 \
PriorityTier=1 PreemptMode=off State=UP
PartitionName=short Nodes={short} MaxTime=00:10:00 DefaultTime=00:10:00 \
PriorityTier=1 PreemptMode=off State=UP
PartitionName=preempt Nodes={nodes} MaxTime=1-00:00:00 DefaultTime=01:00:00 \
PriorityTier=1 PreemptMode=REQUEUE GraceTime=5 State=UP
PartitionName=urgent Nodes={nodes} MaxTime=1-00:00:00 DefaultTime=01:00:00 \
PriorityTier=10 PreemptMode=off State=UP
PartitionName=down Nodes={nodes} MaxTime=1-00:00:00 DefaultTime=01:00:00 \
PriorityTier=1 PreemptMode=off State=DOWN
"""

# The client library takes its default Unix socket for "localhost" and never gets here.
SLURMDBD_CONF = """\
{plugins}
AuthType=auth/munge
AuthInfo=socket={munge_socket}
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={slurmdbd_port}
SlurmUser=root
LogFile={logs}/slurmdbd.log
PidFile={state}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageLoc={database}
StorageUser=slurm
StoragePass={password}
"""

CGROUP_CONF = """\
CgroupPlugin={plugin}
CgroupMountpoint={mountpoint}
ConstrainRAMSpace=yes
"""


def span(prefix: str, first: int, count: int) -> str:
    """Several names in Slurm's short form: node1, or node[1-4]."""
    return f"{prefix}{first}" if count == 1 else f"{prefix}[{first}-{first + count - 1}]"


def host() -> str:
    """The name that the daemons know this machine by."""
    return socket.gethostname().split(".")[0]


def slurm_conf(layout: Layout, settings: Settings) -> str:
    """slurm.conf."""
    return SLURM_CONF.format(
        host=host(),
        plugins=_plugins(layout),
        controller_port=settings.controller_port,
        munge_socket=layout.munge_socket,
        state=layout.state,
        spool=layout.spool,
        logs=layout.logs,
        tracking=_tracking(settings),
        max_array_size=settings.max_array_size,
        accounting=_accounting(layout, settings),
        nodes=span("node", 1, settings.nodes),
        node_ports=span("", settings.node_port, settings.nodes),
        short=span("node", 1, min(2, settings.nodes)),
        gres=f" Gres=gpu:h100:{settings.gpus}" if settings.gpus else "",
        cpus=CPUS,
        cores=CPUS // 2,
        memory=MEMORY_MB,
        # Without a default each job would take a whole node's memory, and none would share.
        memory_per_cpu=MEMORY_MB // CPUS,
    )


def _plugins(layout: Layout) -> str:
    folder = layout.programs.resolve().parent / "plugins"
    return f"PluginDir={folder}" if layout.programs.exists() else "# of the machine's own release"


def _tracking(settings: Settings) -> str:
    if settings.cgroups:
        return "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup"
    return "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"


def _accounting(layout: Layout, settings: Settings) -> str:
    if not settings.accounting:
        return "AccountingStorageType=accounting_storage/none"
    enforced = ["AccountingStorageEnforce=limits,qos"] if settings.limits else []
    return "\n".join(
        [
            *enforced,
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={settings.slurmdbd_port}",
            f"AccountingStoragePass={layout.munge_socket}",  # not AuthInfo: munge's socket for slurmdbd
            "AccountingStorageTRES=gres/gpu",
        ]
    )


def gres_conf(layout: Layout, settings: Settings) -> str:
    """gres.conf."""
    if not settings.gpus:
        return ""
    files = span(f"{layout.devices}/nvidia", 0, settings.gpus)
    return f"NodeName={span('node', 1, settings.nodes)} Name=gpu Type=h100 File={files}\n"


def slurmdbd_conf(layout: Layout, settings: Settings, password: str) -> str:
    """slurmdbd.conf."""
    return SLURMDBD_CONF.format(
        plugins=_plugins(layout),
        munge_socket=layout.munge_socket,
        host=host(),
        slurmdbd_port=settings.slurmdbd_port,
        logs=layout.logs,
        state=layout.state,
        database_port=settings.database_port,
        database=DATABASE,
        password=password,
    )


def cgroup_conf(mountpoint: str, v2: bool) -> str:
    """cgroup.conf. With v2, slurmd makes its groups itself instead of asking systemd, which need not be here."""
    text = CGROUP_CONF.format(plugin="cgroup/v2" if v2 else "cgroup/v1", mountpoint=mountpoint)
    return text + "IgnoreSystemd=yes\nEnableControllers=yes\n" if v2 else text
