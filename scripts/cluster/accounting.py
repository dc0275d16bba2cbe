"""MariaDB and slurmdbd, and who may charge what."""

import secrets

from cluster import conf, daemons
from cluster.layout import Layout
from cluster.polling import wait_until
from cluster.settings import Settings

ACCOUNT = "research"


def start(layout: Layout, settings: Settings) -> None:
    """Make the database and start both daemons; slurmctld needs them when it starts."""
    password = secrets.token_hex(16)
    _start_database(layout, settings)
    _make_database(layout, password)
    path = layout.etc / "slurmdbd.conf"
    path.touch(mode=0o600)  # slurmdbd refuses one that others may read
    path.write_text(conf.slurmdbd_conf(layout, settings, password))
    daemons.spawn(layout, "slurmdbd", ["slurmdbd", "-D"])
    daemons.wait_for(layout, "slurmdbd", lambda: _answers(layout), "slurmdbd answers")
    daemons.check_run(layout, "sacctmgr", "-i", "add", "cluster", "private")


def add_users(layout: Layout, settings: Settings) -> None:
    """Root and the users asked for, all in one account."""
    daemons.check_run(layout, "sacctmgr", "-i", "add", "account", ACCOUNT, "Cluster=private")
    for user in ["root", *settings.users]:
        daemons.check_run(layout, "sacctmgr", "-i", "add", "user", user, f"Account={ACCOUNT}")


def _start_database(layout: Layout, settings: Settings) -> None:
    data = layout.database
    daemons.check_run(
        layout, "mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--skip-test-db"
    )
    data.chmod(0o755)  # the socket lies there too
    options = [f"--datadir={data}", f"--socket={data}/socket", f"--pid-file={data}/pid", "--user=mysql"]
    options += [f"--port={settings.database_port}", "--bind-address=127.0.0.1"]
    daemons.spawn(layout, "mariadb", ["mariadbd", "--no-defaults", *options])
    socket = data / "socket"
    daemons.wait_for(layout, "mariadb", socket.is_socket, "MariaDB opens its socket")


def _make_database(layout: Layout, password: str) -> None:
    statements = [f"CREATE DATABASE {conf.DATABASE}"]
    for host in ("localhost", "127.0.0.1"):
        statements.append(f"CREATE USER 'slurm'@'{host}' IDENTIFIED BY '{password}'")
        statements.append(f"GRANT ALL ON {conf.DATABASE}.* TO 'slurm'@'{host}'")
    script = layout.state / "database.sql"
    script.touch(mode=0o600)
    script.write_text(";\n".join(statements) + ";\n")
    client = ["mariadb", "--no-defaults", f"--socket={layout.database}/socket", "-e", f"source {script}"]
    wait_until(lambda: daemons.run(layout, *client).returncode == 0, 15, "MariaDB takes statements")
    script.unlink()


def _answers(layout: Layout) -> bool:
    return daemons.run(layout, "sacctmgr", "-n", "show", "cluster", seconds=5).returncode == 0
