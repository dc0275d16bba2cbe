"""`slurmopt completion SHELL`: prints a script that makes a shell complete `slurmopt …`."""

from __future__ import annotations

import argparse

_BASH = r"""_slurmopt() {
  local line=${COMP_LINE:0:COMP_POINT}
  local word=${line##*[[:space:]]} kept= break candidate
  # bash replaces only what follows the last of its word breaks
  for break in = :; do
    if [[ $COMP_WORDBREAKS == *"$break"* && $word == *"$break"* ]]; then
      candidate=${word%"${word##*"$break"}"}
      if (( ${#candidate} > ${#kept} )); then kept=$candidate; fi
    fi
  done
  COMPREPLY=()
  while IFS= read -r candidate; do
    COMPREPLY+=("${candidate#"$kept"}")
    # a key goes on with its value, a group with its option
    if [[ $candidate == *[=./] ]]; then compopt -o nospace 2>/dev/null; fi
  done < <("$1" _complete "$line" 2>/dev/null)
}
complete -o default -F _slurmopt slurmopt
"""

_ZSH = r"""#compdef slurmopt
_slurmopt() {
  local -a candidates open closed
  local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
  candidates=("${(@f)$("${words[1]}" _complete "$line" 2>/dev/null)}")
  # a key goes on with its value, a group with its option: no space after these
  open=("${(@M)candidates:#*[=./]}")
  closed=("${(@)candidates:#*[=./]}")
  closed=("${(@)closed:#}")
  if (( ! $#open && ! $#closed )); then _files; return; fi
  (( $#open )) && compadd -S '' -a open
  (( $#closed )) && compadd -a closed
}
compdef _slurmopt slurmopt
"""

_FISH = r"""function __slurmopt_complete
    set -l words (commandline -opc)
    $words[1] _complete (commandline -cp | string collect) 2>/dev/null
end
complete -c slurmopt -f -a '(__slurmopt_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_EPILOG = """to have it in every shell:
  bash   echo 'eval "$(slurmopt completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(slurmopt completion zsh)"' >> ~/.zshrc        (after compinit)
  fish   slurmopt completion fish > ~/.config/fish/completions/slurmopt.fish"""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    print(_SCRIPTS[parser().parse_args(argv).shell], end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt completion`."""
    parser = argparse.ArgumentParser(
        prog="slurmopt completion",
        description="Print a script that teaches a shell to complete `slurmopt`: commands, runs, Hydra overrides.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=list(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    return parser
