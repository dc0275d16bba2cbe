"""What each failure of Slurm's commands becomes; the commands here are scripts that say what real ones said."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmopt.errors import SlurmError, SlurmMissing, SlurmRefused, SlurmUnreachable
from slurmopt.slurm import client
from slurmopt.slurm.environment import clean_environment, stated_options


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def write(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("\n".join(["#!/bin/sh", *lines, ""]))
    (folder / name).chmod(0o755)


SAID = [
    (
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        SlurmUnreachable,
    ),
    ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", SlurmUnreachable),
    (
        "sbatch: error: slurm_msg_sendto: address:port=127.0.0.1:6817 msg_type=4003: Unexpected missing socket error",
        SlurmUnreachable,
    ),
    ("slurm_load_jobs error: Unexpected message received", SlurmUnreachable),
    ("allocation failure: Zero Bytes were transmitted or received", SlurmUnreachable),
    ("sbatch: error: Batch job submission failed: Slurm backup controller in standby mode", SlurmUnreachable),
    ("sbatch: error: Batch job submission failed: Protocol authentication error", SlurmUnreachable),
    ("sacct: error: Problem talking to the database: Connection refused", SlurmUnreachable),
    ("sbatch: error: s_p_parse_file: cannot stat file /x: No such file or directory, retrying", SlurmUnreachable),
    ("sinfo: fatal: Could not establish a configuration source", SlurmUnreachable),
    ("sbatch: error: Batch job submission failed: Invalid qos specification", SlurmRefused),
    ("sbatch: unrecognized option '--nonsense'", SlurmRefused),
    ("Slurm accounting storage is disabled", SlurmRefused),
]


@pytest.mark.parametrize(("said", "error"), SAID)
def test_each_complaint_is_one_line_of_the_right_kind(command: Path, said: str, error: type[SlurmError]) -> None:
    write(command, "sbatch", f'echo "{said}" >&2', "exit 1")
    with pytest.raises(error) as caught:
        client.run(["sbatch"], 10)
    assert str(caught.value).isprintable()


def test_a_refusal_gives_slurms_reason_without_its_prefixes(command: Path) -> None:
    write(
        command,
        "sbatch",
        "echo 'sbatch: error: invalid partition specified: nope' >&2",
        "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2",
        "exit 1",
    )
    with pytest.raises(SlurmRefused) as caught:
        client.run(["sbatch"], 10)
    assert str(caught.value) == "sbatch: invalid partition specified: nope; Invalid partition name specified"


def test_a_refusal_without_words_tells_the_exit_status(command: Path) -> None:
    write(command, "scancel", "exit 7")
    with pytest.raises(SlurmRefused, match="scancel: exit status 7"):
        client.run(["scancel"], 10)


def test_no_configuration_names_slurm_conf(command: Path) -> None:
    write(command, "sinfo", "echo 'sinfo: fatal: Could not establish a configuration source' >&2", "exit 1")
    with pytest.raises(SlurmUnreachable, match="set SLURM_CONF"):
        client.run(["sinfo"], 10)


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(SlurmMissing, match=r"sbatch-of-nowhere is not installed here; launch\.backend=local"):
        client.run(["sbatch-of-nowhere"], 10)


def test_no_answer_in_time(command: Path) -> None:
    write(command, "squeue", "exec sleep 60")
    with pytest.raises(SlurmUnreachable, match=r"squeue got no answer within 0\.2 s"):
        client.run(["squeue"], 0.2)


def test_output_may_hold_any_bytes(command: Path) -> None:
    write(command, "squeue", r"printf 'a\377b\n\303\274'")
    assert client.run(["squeue"], 10) == "a\udcffb\nü"


def test_the_script_goes_in_as_it_is_and_nothing_is_read_from_the_terminal(command: Path) -> None:
    write(command, "sbatch", "cat")
    assert client.run(["sbatch"], 10, input="a\udcffb\n") == "a\udcffb\n"
    assert client.run(["sbatch"], 10) == ""


def test_the_users_own_filters_and_formats_do_not_change_a_question(command: Path) -> None:
    write(command, "squeue", 'echo "$LC_ALL $SLURM_TIME_FORMAT ${SQUEUE_PARTITION-unset} ${SLURM_CONF-unset}"')
    environ = {
        "PATH": str(command),
        "SQUEUE_PARTITION": "x",
        "SLURM_TIME_FORMAT": "relative",
        "LC_ALL": "de_DE",
        "SLURM_CONF": "/c",
    }
    assert client.run(["squeue"], 10, environ).split() == ["C", "standard", "unset", "/c"]
    assert client.run(["squeue"], 10, environ, time_format="%s").split()[1] == "%s"


def test_a_job_inherits_the_locale_of_who_launched_it(command: Path) -> None:
    write(command, "sbatch", 'echo "$LC_ALL ${SLURM_TIME_FORMAT-unset}"')
    assert client.run(["sbatch"], 10, {"PATH": str(command), "LC_ALL": "de_DE.UTF-8"}).split() == [
        "de_DE.UTF-8",
        "unset",
    ]


INSIDE = {
    "PATH": "/bin", "HOME": "/h", "SLURM_JOB_ID": "1", "SLURM_CONF": "/c", "SLURM_CLUSTERS": "a", "SLURM_JWT": "t",
    "SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_PER_TASK": "2", "SLURMD_NODENAME": "n", "SRUN_DEBUG": "3", "PMI_RANK": "0",
    "PMIX_RANK": "0", "SBATCH_MEM_BIND": "local", "SBATCH_ACCOUNT": "team", "CUDA_VISIBLE_DEVICES": "3",
    "SLURM_JOB_GPUS": "3", "SLURMOPT_TOKEN": "t",
}  # fmt: skip


def test_a_new_job_inherits_nothing_of_the_job_that_launches_it() -> None:
    kept = clean_environment(INSIDE)
    assert sorted(kept) == [
        "HOME",
        "PATH",
        "SBATCH_ACCOUNT",
        "SLURMOPT_TOKEN",
        "SLURM_CLUSTERS",
        "SLURM_CONF",
        "SLURM_JWT",
    ]


def test_gpus_that_slurm_did_not_choose_stay() -> None:
    assert "CUDA_VISIBLE_DEVICES" in clean_environment({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "3"})


def test_outside_a_job_the_login_environment_stays() -> None:
    login = {"SBATCH_ACCOUNT": "team", "SLURM_TIME_FORMAT": "relative", "SRUN_X": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert clean_environment(login) == login
    assert clean_environment({**login, "SBATCH_WAIT": "1", "SBATCH_ARRAY_INX": "0-3"}) == login


SCRIPT = "#!/bin/bash\n#SBATCH --account=other\n#SBATCH --mem-per-gpu=4G\n#SBATCH --requeue\n#SBATCH --time=1\ntrue\n"


def test_what_the_script_states_wins_over_the_sites_defaults() -> None:
    site = {f"SBATCH_{name}": "x" for name in ("ACCOUNT", "QOS", "MEM_PER_NODE", "NO_REQUEUE", "TIMELIMIT")}
    assert list(clean_environment(site, SCRIPT)) == ["SBATCH_QOS"]
    assert stated_options(SCRIPT) == ["account", "mem-per-gpu", "requeue", "time"]
