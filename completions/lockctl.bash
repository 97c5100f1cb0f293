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
