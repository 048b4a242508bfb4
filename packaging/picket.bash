# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Completion of picket in bash: verbs, options, and the names of locks that are in use.

# Options come from the program itself, so that this file can't fall behind it.
_picket_options() {
    picket "$1" --help 2>/dev/null | sed -n 's/^  \(-.,\|   \) \(--[a-z-]*\).*/\2/p'
}

_picket_locks() {
    picket ls -q "$1" 2>/dev/null
}

# Offers the lines of $1 that begin with $2, with what a shell would stumble over quoted.
_picket_offer() {
    local line
    while IFS= read -r line; do
        [[ -n $line && $line == "$2"* ]] && COMPREPLY+=("$(printf '%q' "$line")")
    done <<<"$1"
}

_picket_files() {
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# Where a command begins, its own completion takes over.
_picket_command() {
    local i
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
            fi
            return 0
        fi
    done
    return 1
}

_picket() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local verb=${COMP_WORDS[1]}
    local verbs='run once acquire extend release elect ls show why watch break fence'
    verbs+=' gate drill sim doctor serve dev cluster bench version'
    local plays='run fuzz replay'
    local changes='status add promote replace remove transfer backup restore'
    changes+=' recover hold upgrade downgrade limits configure'
    local fences='claim check put get show metrics shadow enforce file install'
    COMPREPLY=()
    if ((COMP_CWORD == 1)) || [[ $verb == help ]]; then
        _picket_offer "${verbs// /$'\n'}"$'\nhelp' "$word"
        return
    fi
    case $verb in
    run | elect | once | fence) _picket_command && return ;;
    esac
    case $before in
    -o | --output) _picket_offer $'text\njson' "$word" ;;
    --label) _picket_offer $'program\ncommand' "$word" ;;
    --require) _picket_offer $'correctness\nefficiency' "$word" ;;
    --resource-from) _picket_offer $'path-prefix\nheader' "$word" ;;
    --missing) _picket_offer $'refuse\npass\nshadow' "$word" ;;
    --flavour) _picket_offer $'picket\netcd\nzookeeper\nredlock' "$word" ;;
    --fence) _picket_offer $'off\ncheck\non' "$word" ;;
    --file | --config | --data | --trace) _picket_files "$word" ;;
    --svg | --json | --out) _picket_files "$word" ;;
    --also) _picket_offer "$(_picket_locks "$word")" "$word" ;;
    fence) _picket_offer "${fences// /$'\n'}" "$word" ;;
    cluster) _picket_offer "${changes// /$'\n'}" "$word" ;;
    sim) _picket_offer "${plays// /$'\n'}" "$word" ;;
    *)
        if [[ $word == -* ]]; then
            _picket_offer "$(_picket_options "$verb")" "$word"
        else
            case $verb in
            version | extend | serve | dev | drill | doctor | gate) ;;
            bench) _picket_offer $'latency\npairs\nhandoff\nrenew\nhold' "$word" ;;
            fence) [[ $before == file ]] && _picket_files "$word" ;;
            sim) _picket_files "$word" ;;
            cluster)
                [[ $before == @(backup|restore|recover) ]] && _picket_files "$word"
                ;;
            *) _picket_offer "$(_picket_locks "$word")" "$word" ;;
            esac
        fi
        ;;
    esac
}

complete -F _picket picket
