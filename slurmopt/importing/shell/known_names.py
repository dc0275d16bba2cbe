"""Names that scripts use for what slurmopt does itself, and names of secrets."""

from __future__ import annotations

import re

TASK_ID = "SLURM_ARRAY_TASK_ID"
SUBMIT_FOLDER = ("SLURM_SUBMIT_DIR",)
_HOSTS = re.compile(r"scontrol\s+show\s+host|SLURM_(JOB_|STEP_)?NODELIST|SLURM_LAUNCH_NODE_IPADDR")
_PORT = re.compile(r"(MASTER|MAIN(_PROCESS)?|RDZV|HEAD_NODE)_?PORT|PORT", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(MASTER|MAIN(_PROCESS)?|HEAD(_?NODE)?|RDZV)(_?(ADDR(ESS)?|IP|HOST|ENDPOINT|NODE))?", re.IGNORECASE
)
_COUNTS = {"WORLD_SIZE": "WORLD_SIZE", "RANK": "RANK", "LOCAL_RANK": "LOCAL_RANK", "NODE_RANK": "NODE_RANK"}
_SECRET = re.compile(
    r"(.*_)?(API_?KEY|ACCESS_?KEY|SECRET(_.*)?|PASSWORD|PASSWD|PASSPHRASE|TOKEN|CREDENTIALS?|PRIVATE_KEY|AUTH)",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|xox[abp]-[\w-]{10,})"
)

ADDRESS, PORT, HOSTS = "MASTER_ADDR", "MASTER_PORT", ""
"""What a variable of the rendezvous is in the job of slurmopt; HOSTS has no counterpart."""


def rendezvous(name: str, source: str, names: list[str], known: dict[str, str]) -> str | None:
    """What a variable stands for, if it is one with which a script connects its ranks; else None.

    `source`: its value as written; `names`: the variables in it; `known`: the rendezvous variables so far.
    """
    if name in _COUNTS:
        return _COUNTS[name]
    computed = bool(_HOSTS.search(source)) or any(other in known for other in names)
    if _PORT.fullmatch(name) and (computed or name.upper() != "PORT" or "$(" in source):
        return PORT
    if _ADDRESS.fullmatch(name) and (computed or "hostname" in source or name.upper() == "MASTER_ADDR"):
        return ADDRESS
    if not computed:
        return None
    return ADDRESS if re.search(r"addr|ip$|_ip|head|master|first", name, re.IGNORECASE) else HOSTS


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return bool(_SECRET.fullmatch(name))


def has_secret(text: str) -> bool:
    """Whether a line has something that looks like a token or a key."""
    given = re.findall(r"\b([A-Za-z_]\w*)=(\"?'?[^\s$\"']+)", text)
    return bool(_SECRET_TEXT.search(text)) or any(is_secret(name) for name, _ in given)


def secret_lines(text: str, exports: bool = True) -> list[int]:
    """The numbers of the lines of a script that have one. Without `exports`: but those that begin with export."""
    left_out = r"\s*#" if exports else r"\s*(export\s|#)"
    return [at for at, line in enumerate(text.split("\n"), 1) if has_secret(line) and not re.match(left_out, line)]


def masked(text: str) -> str:
    """The line without the values of secrets, for showing."""
    text = _SECRET_TEXT.sub("…", text)
    return re.sub(
        r"\b([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S+)",
        lambda match: (
            f"{match[1]}=…" if is_secret(match[1]) and not match[2].lstrip("\"'").startswith("$") else match[0]
        ),
        text,
    )
