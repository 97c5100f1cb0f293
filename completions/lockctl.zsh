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
