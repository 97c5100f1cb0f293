"""``lockctl completion``: the script of each shell, the same that the package installs.

click answers what the scripts ask, a line ``type,value`` (zsh: three lines) for each word that fits. Its own scripts
do not know that shells take ``--option=value``, and bash also ``deploy:prod`` and ``ops@web``, for several words or
for one: with them such a word is not completed, or is replaced by something else.
"""

from __future__ import annotations

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.output import print_data

# bash cuts words at the characters of COMP_WORDBREAKS, and replaces the last piece alone
BASH = r"""
_lockctl_completion() {
    local IFS=$'\n'
    local words=() places=() rest=$COMP_LINE piece after number
    for ((number = 0; number <= COMP_CWORD; number++)); do
        piece=${COMP_WORDS[number]}
        after=${rest#"${rest%%[![:blank:]]*}"}
        if ((number > 0)) && [[ $after == "$rest" && "${COMP_WORDS[number - 1]: -1}${piece:0:1}" == *[:=@]* ]]; then
            words[${#words[@]} - 1]+=$piece
        else
            words+=("$piece")
            places+=("$number")
        fi
        rest=${after#"$piece"}
    done

    local last=$((${#words[@]} - 1)) before="" there=""
    local value=${words[last]}
    if [[ $piece == --*=* ]]; then
        before=${piece%%=*}=
    fi
    if [[ $value == --*=* ]]; then
        value=${value#*=}
    fi
    if [[ $piece == [:=@] ]]; then
        there=$value
    elif [[ -z $before ]]; then
        there=${value%"$piece"}
    fi
    there=${there%@}  # which readline takes for a part of the last piece

    local response completion type
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD="$last" _LOCKCTL_COMPLETE=bash_complete "$1")
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'command' ]]; then
            COMPREPLY=()
            if declare -F _command_offset > /dev/null; then
                IFS=$' \t\n'
                _command_offset "${places[last - value]}"
                return
            fi
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$before${value#"$there"}")
        fi
    done
    return 0
}

complete -o nosort -F _lockctl_completion lockctl
"""

ZSH = r"""
#compdef lockctl

_lockctl_completion() {
    local -a completions
    local -a completions_with_descriptions
    local -a response
    local type key descr before=""
    (( ! $+commands[lockctl] )) && return 1

    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) _LOCKCTL_COMPLETE=zsh_complete lockctl)}")
    # what is offered for --option=value must be all of the word
    [[ ${words[CURRENT]} == --*=* ]] && before=${words[CURRENT]%%=*}=

    for type key descr in ${response}; do
        if [[ "$type" == "plain" ]]; then
            if [[ "$descr" == "_" ]]; then
                completions+=("$before$key")
            else
                completions_with_descriptions+=("$before$key":"$descr")
            fi
        elif [[ "$type" == "dir" ]]; then
            compset -P "${(b)before}"
            _path_files -/
        elif [[ "$type" == "file" ]]; then
            compset -P "${(b)before}"
            _path_files -f
        elif [[ "$type" == "command" ]]; then
            shift $((CURRENT - 1 - key)) words
            CURRENT=$((key + 1))
            _normal
            return
        fi
    done

    if [ -n "$completions_with_descriptions" ]; then
        _describe -V unsorted completions_with_descriptions -U
    fi

    if [ -n "$completions" ]; then
        compadd -U -V unsorted -a completions
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    # autoload from fpath, call function directly
    _lockctl_completion "$@"
else
    # eval/source/. command, register function for later
    compdef _lockctl_completion lockctl
fi
"""

FISH = r"""
function _lockctl_completion;
    set -l token (commandline -ct);
    # what is offered for --option=value must be all of the word
    set -l before (string match -r -- '^--[^=]+=' $token);
    set -l response (env _LOCKCTL_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD="$token" lockctl);

    for completion in $response;
        set -l metadata (string split -m 1 "," $completion);

        if test $metadata[1] = "dir";
            for found in (__fish_complete_directories "$metadata[2]");
                echo "$before$found";
            end;
        else if test $metadata[1] = "file";
            for found in (__fish_complete_path "$metadata[2]");
                echo "$before$found";
            end;
        else if test $metadata[1] = "command";
            set -l words (commandline -opc);
            set -l first (math (count $words) - $metadata[2] + 1);
            complete -C (string join -- " " (string escape -- $words[$first..-1]) "$token");
        else if test $metadata[1] = "plain";
            echo "$before$metadata[2]";
        end;
    end;
end;

complete --no-files --command lockctl --arguments "(_lockctl_completion)";
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def script(shell: str) -> str:
    """The completion script for *shell*."""
    return SCRIPTS[shell].lstrip()


@verb(
    "completion",
    examples={
        "lockctl completion bash > ~/.local/share/bash-completion/completions/lockctl": "For bash.",
        "lockctl completion zsh > ~/.zfunc/_lockctl": "For zsh, with `fpath+=~/.zfunc` before compinit in ~/.zshrc.",
    },
)
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
def command(shell: str) -> int:
    """Print the completion script for a shell."""
    print_data(script(shell))
    return exit_status.OK
