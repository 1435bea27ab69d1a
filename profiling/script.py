"""The program `profiling-nanogpt` that pip installs: `python -m profiling` from any folder."""

import sys
from runpy import run_module

from cli.program import NAME, PROGRAMS, use_installed_program

# what bash runs for TAB: the second word is one of ours, the others are those of train.py
COMPLETION = """\
_profiling_nanogpt() {
    local offered="%s"
    if [ "$COMP_CWORD" -gt 1 ]; then
        [ "${COMP_WORDS[1]}" = train ] || return
        offered=$(COMP_LINE="${COMP_LINE:0:COMP_POINT}" "${COMP_WORDS[0]}" train -sc query=bash)
    fi
    COMPREPLY=($(compgen -W "$offered" -- "${COMP_WORDS[COMP_CWORD]}"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _profiling_nanogpt %s"""


def main() -> None:
    """Do what `python -m profiling` does, or print the completions that bash is to offer."""
    use_installed_program(sys.argv[0])
    if sys.argv[-2:] == ["-sc", "install=bash"]:
        from profiling.__main__ import VERBS

        print(COMPLETION % (" ".join([*PROGRAMS, *VERBS]), NAME))
        return
    run_module("profiling", run_name="__main__", alter_sys=True)
