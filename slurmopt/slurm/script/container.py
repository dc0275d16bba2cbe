"""The container around each rank: what is mounted in it, and which variables of the job it gets."""

from __future__ import annotations

from pathlib import Path

from slurmopt.config.composition.deferred import DEFERRED
from slurmopt.config.storage import stage_plan
from slurmopt.errors import ConfigError
from slurmopt.slurm.script.job import Job
from slurmopt.slurm.script.quoting import shell, shell_deferred
from slurmopt.storage.kinds import KINDS
from slurmopt.storage.staging.source import is_s3

PACKAGE = "/opt/slurmopt"
"""Where slurmopt itself lies in the container."""
_OF_THE_JOB = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "PYTHONPATH", "PYTHONUNBUFFERED", "SLURMOPT_COMMAND")


def pyxis_options(job: Job) -> list[str]:
    """srun's options of the pyxis plugin, each one word of bash."""
    container = job.settings.environment.container
    return [
        shell(f"--container-image={container.image}"),
        "--container-mounts=" + ",".join(_mounts(job)),
        # Of a variable that the image sets too, pyxis takes the image's value, unless it is named here.
        shell(f"--container-env={','.join(variables(job))}"),
        shell(f"--container-workdir={job.workdir}"),
        *map(shell, container.options),
    ]


def apptainer_words(job: Job) -> list[str]:
    """The words of bash in front of the rank's own; apptainer takes the variables as APPTAINERENV_NAME."""
    container = job.settings.environment.container
    binds = [word for mount in _mounts(job) for word in ("--bind", mount)]
    gpus = ["--nv"] if job.settings.resources.gpus_per_node else []
    options = map(shell, [*container.options, container.image])
    return ["apptainer", "exec", *gpus, *binds, "--pwd", shell(job.workdir), *options]


def apptainer_variables(job: Job) -> list[str]:
    """`variables` where apptainer is used, else none."""
    container = job.settings.environment.container
    return variables(job) if container.image is not None and container.runtime == "apptainer" else []


def variables(job: Job) -> list[str]:
    """The names of the variables whose values in the job win over those of the image."""
    settings = job.settings
    own = [*settings.network.variables.items(), *settings.environment.variables.items()]
    places = [*_tier_places(job).values(), *_stage_folders(job).values(), *_sources(job).values()]
    read = [match[1] for place in places for match in DEFERRED.finditer(place)]
    return sorted({*_OF_THE_JOB, *read, *(str(name) for name, value in own if value is not None)})


def mounted_folders(job: Job, nodes: int | str) -> list[tuple[str, str]]:
    """What makes the folders of checkpoint tiers and of staged copies, which must exist to be mounted: pairs of a line
    of bash and what its failure means. `nodes`: how many nodes the job has, a number or a word of bash."""
    if job.settings.environment.container.image is None:
        return []
    each_node = "" if job.local else f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 "
    folders = _tier_folders(job)
    lines = {tier: f"{each_node if KINDS[tier].node_local else ''}mkdir -p {word}" for tier, word in folders.items()}
    made = [(line, f"cannot make the folder of checkpoint.{tier}.path") for tier, line in lines.items()]
    missing = {key: word for key, word in _stage_words(job).items() if word not in folders.values()}
    return [
        *made,
        *((f"{each_node}mkdir -p {word}", f"cannot make the folder of {key}") for key, word in missing.items()),
    ]


def _tier_folders(job: Job) -> dict[str, str]:
    """The folders of checkpoint tiers besides the run folder, by tier, each one word of bash."""
    return {tier: _word(place, f"checkpoint.{tier}.path") for tier, place in _tier_places(job).items()}


def _tier_places(job: Job) -> dict[str, str]:
    """What the config says of them; `${oc.env:NAME}` is filled in within the job."""
    places = {tier: str(rule.place) for tier, rule in job.settings.checkpoint.tiers.items() if KINDS[tier].is_folder}
    return {tier: place for tier, place in places.items() if place != "auto"}


def _stage_folders(job: Job) -> dict[str, str]:
    """The folders of staged copies, by the key of the first entry that uses each."""
    plan = stage_plan(job.settings.storage, job.settings.checkpoint)
    entries = {} if plan is None else plan.entries
    by_place = {str(entry.into): f"storage.stage.{name}.into" for name, entry in reversed(entries.items())}
    return {key: place for place, key in by_place.items()}


def _stage_words(job: Job) -> dict[str, str]:
    return {key: _word(place, key) for key, place in _stage_folders(job).items()}


def _sources(job: Job) -> dict[str, str]:
    """What is staged, other than from S3, by key: the first rank of each node reads it in the container."""
    plan = stage_plan(job.settings.storage, job.settings.checkpoint)
    entries = {} if plan is None else plan.entries
    places = {f"storage.stage.{name}.source": str(entry.source) for name, entry in entries.items()}
    return {key: place for key, place in places.items() if not is_s3(place)}


def _word(place: str, key: str) -> str:
    path = str(Path(place).expanduser())
    if set(",:") & set(DEFERRED.sub(lambda match: match[2] or "", path)):
        raise ConfigError(f"{path!r} cannot be mounted in a container: no comma or colon may be in it", key)
    return shell_deferred(path, key)


def _mounts(job: Job) -> list[str]:
    """SOURCE:TARGET each, as a word of bash."""
    package = Path(__file__).resolve().parents[2]
    here = [shell(folder) for folder in (job.folder.path, job.workdir)]
    folders = [*here, *_tier_folders(job).values(), *_stage_words(job).values()]
    own = [f"{folder}:{folder}" for folder in dict.fromkeys(folders)]
    own += [f"{word}:{word}:ro" for word in (_word(place, key) for key, place in _sources(job).items())]
    container = job.settings.environment.container
    return [*own, shell(f"{package}:{PACKAGE}/slurmopt:ro"), *map(shell, container.mounts)]
