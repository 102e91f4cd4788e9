#!/bin/bash
# Checks of a machine before anything on it is changed. All of its problems are told together: whoever repairs one learns of
# the others in the same run.

# Checks that have not begun.
CHECKS_LEFT=()

# Run checks in their order. One that fails ends the step, after the others were tried.
run_checks() {
    CHECKS_LEFT=("$@")
    trap 'after_checks $?' EXIT
    begin_checks_left
    trap write_answer EXIT
}

begin_checks_left() {
    local check
    while [ "${#CHECKS_LEFT[@]}" -gt 0 ]; do
        check=${CHECKS_LEFT[0]}
        CHECKS_LEFT=("${CHECKS_LEFT[@]:1}")
        "$check"
    done
}

# The end of the step: adds the problems of the checks that are left to the one that ended it.
after_checks() {
    local status=$1 line
    set +e
    if [ -n "$REASON" ]; then
        try_checks_left
        if [ -s "$ANSWER.more" ]; then
            while IFS= read -r line; do
                REASON+="; also: $line"
                IFS= read -r line && REMEDY+="; also: $line"
            done <"$ANSWER.more"
        fi
        rm -f "$ANSWER.more"
    fi
    (exit "$status")
    write_answer
}

# Try the checks that are left, in a shell that knows what those before have found. (Not as part of a list with || or &&,
# within which no failing command would end it.)
try_checks_left() {
    [ "${#CHECKS_LEFT[@]}" -gt 0 ] || return 0
    (
        forget_problem
        trap after_another_check EXIT
        set -e
        begin_checks_left
    )
}

# What the shell of another check has of its own.
forget_problem() { REASON='' REMEDY='' TEMPORARY=() AT_END=(); }

# Two lines of a file for each problem: what happened, and what to do.
after_another_check() {
    local each
    set +e
    [ -z "$REASON" ] || printf '%s\n' "${REASON//$'\n'/ }" "${REMEDY//$'\n'/ }" >>"$ANSWER.more"
    for each in "${AT_END[@]}"; do "$each"; done
    [ "${#TEMPORARY[@]}" -eq 0 ] || rm -rf "${TEMPORARY[@]}"
    try_checks_left
}
