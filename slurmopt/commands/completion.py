"""`slurmopt completion SHELL`: prints a script that makes a shell complete `slurmopt …`, or writes it to where the
shell looks for such scripts."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from slurmopt.errors import FolderError, why_failed
from slurmopt.option_parser import OptionParser
from slurmopt.run_folder.access.files import replace_text

_BASH = r"""_slurmopt() {
  local line=${COMP_LINE:0:COMP_POINT}
  local word=${line##*[[:space:]]} kept= files= break candidate text longest=0 at
  local -a texts=()
  # bash replaces only what follows the last of its word breaks
  for break in = :; do
    if [[ $COMP_WORDBREAKS == *"$break"* && $word == *"$break"* ]]; then
      candidate=${word%"${word##*"$break"}"}
      if (( ${#candidate} > ${#kept} )); then kept=$candidate; fi
    fi
  done
  COMPREPLY=()
  {
    read -r files
    while IFS=$'\t' read -r candidate text; do
      COMPREPLY+=("${candidate#"$kept"}")
      texts+=("$text")
      # a key goes on with its value, a group with its option
      if [[ $candidate == *[=./] ]]; then compopt -o nospace 2>/dev/null; fi
    done
  } < <("$1" _complete --shell "$line" 2>/dev/null)
  case $files in
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
  esac
  # 63: bash only lists them, after a second tab; what it lists then is not put on the line
  if [[ ${COMP_TYPE-} == 63 && ${#COMPREPLY[@]} -gt 1 ]]; then
    for candidate in "${COMPREPLY[@]}"; do
      if (( ${#candidate} > longest )); then longest=${#candidate}; fi
    done
    for at in "${!COMPREPLY[@]}"; do
      if [[ ${texts[at]} ]]; then
        printf -v line '%-*s  (%s)' "$longest" "${COMPREPLY[at]}" "${texts[at]}"
        COMPREPLY[at]=${line:0:$(( ${COLUMNS:-80} - 2 ))}
      fi
    done
  fi
}
complete -F _slurmopt slurmopt
"""

_ZSH = r"""#compdef slurmopt
_slurmopt() {
  local -a candidates open closed open_shown closed_shown
  local line="${(j: :)words[1,CURRENT-1]} $PREFIX" files candidate word shown
  local -i found=1
  candidates=("${(@f)$("${words[1]}" _complete --shell "$line" 2>/dev/null)}")
  files=$candidates[1]
  shift candidates
  for candidate in "${(@)candidates:#}"; do
    word=${candidate%%$'\t'*}
    shown=$word
    if [[ -n ${candidate#*$'\t'} ]]; then shown="$word  -- ${candidate#*$'\t'}"; fi
    # a key goes on with its value, a group with its option: no space after these
    if [[ $word == *[=./] ]]; then open+=("$word") open_shown+=("$shown")
    else closed+=("$word") closed_shown+=("$shown"); fi
  done
  if [[ $files != none ]]; then
    compset -P '*='
    if [[ $files == folders ]]; then _files -/; else _files; fi && found=0
  fi
  (( $#open )) && compadd -l -d open_shown -S '' -a open && found=0
  (( $#closed )) && compadd -l -d closed_shown -a closed && found=0
  return found
}
if [[ $funcstack[1] == _slurmopt ]]; then _slurmopt "$@"; else compdef _slurmopt slurmopt; fi
"""

_FISH = r"""function __slurmopt_complete
    set -l words (commandline -opc)
    set -l lines ($words[1] _complete --shell (commandline -cp | string collect) 2>/dev/null)
    set -l kept (string match -r '^[^=]*=' -- (commandline -ct))
    set -q kept[1]; or set kept ''
    set -l path (string replace -r '^[^=]*=' '' -- (commandline -ct))
    switch "$lines[1]"
        case files
            for found in (__fish_complete_path $path)
                echo $kept$found
            end
        case folders
            for found in (__fish_complete_directories $path '')
                echo $kept$found
            end
    end
    if set -q lines[2]
        printf '%s\n' $lines[2..-1]
    end
end
complete -c slurmopt -f -a '(__slurmopt_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_EPILOG = """to have it in every shell:
  bash   slurmopt completion bash --install    (the package bash-completion loads it), or
         echo 'eval "$(slurmopt completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(slurmopt completion zsh)"' >> ~/.zshrc        (after compinit)
  fish   slurmopt completion fish --install"""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.install:
        _install(args.shell)
    else:
        print(_SCRIPTS[args.shell], end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt completion`."""
    parser = OptionParser(
        "slurmopt completion",
        description="Print a script that teaches a shell to complete `slurmopt`: commands, runs, Hydra overrides.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=list(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.add_argument(
        "--install", action="store_true", help="write it to your folder of completions; no other file is changed"
    )
    return parser


def _install(shell: str) -> None:
    """Writes the script to where the shell looks for it, and says what is left to do."""
    path = _place(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, _SCRIPTS[shell])
    except OSError as error:
        raise FolderError(
            f"cannot write {path}: {why_failed(error)}; `slurmopt completion {shell}` prints it"
        ) from error
    print(f"wrote {path}\n{_NEXT[shell].format(folder=path.parent)}")


def _place(shell: str) -> Path:
    data = _base("XDG_DATA_HOME", ".local/share")
    return {
        "bash": data / "bash-completion" / "completions" / "slurmopt",
        "zsh": data / "zsh" / "site-functions" / "_slurmopt",
        "fish": _base("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "slurmopt.fish",
    }[shell]


def _base(variable: str, otherwise: str) -> Path:
    configured = os.environ.get(variable, "")
    return Path(configured) if os.path.isabs(configured) else Path.home() / otherwise


_NEXT = {
    "bash": "new shells have it where the package bash-completion is installed",
    "zsh": "add this to ~/.zshrc, before compinit: fpath=({folder} $fpath)",
    "fish": "new shells have it",
}
