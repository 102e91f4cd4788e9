#!/bin/bash
# Run the checks of a machine before anything is changed, and report all of its problems in one run.

# Checks that have not started.
CHECKS_LEFT=()

# Run checks in order. A failing check ends the step after the others have run.
run_checks() {
    CHECKS_LEFT=("$@")
    trap 'after_checks $?' EXIT
    run_remaining_checks
    trap end_calls EXIT
}

run_remaining_checks() {
    local check
    while [ "${#CHECKS_LEFT[@]}" -gt 0 ]; do
        check=${CHECKS_LEFT[0]}
        CHECKS_LEFT=("${CHECKS_LEFT[@]:1}")
        "$check"
    done
}

# End the step: add the problems of the remaining checks to the first one.
after_checks() {
    local status=$1 line
    set +e
    if [ -n "$REASON" ]; then
        try_remaining_checks
        if [ -s "$ANSWER.more" ]; then
            while IFS= read -r line; do
                REASON+="; also: $line"
                IFS= read -r line && REMEDY+="; also: $line"
            done <"$ANSWER.more"
        fi
        rm -f "$ANSWER.more"
    fi
    (exit "$status")
    end_calls
}

# Run the remaining checks in a subshell that has the variables of the earlier ones. (Do not call it in a list with ||
# or &&, which disables `set -e`.)
try_remaining_checks() {
    [ "${#CHECKS_LEFT[@]}" -gt 0 ] || return 0
    (
        forget_problem
        trap after_remaining_check EXIT
        set -e
        run_remaining_checks
    )
}

# Clear the variables that belong to the failed check.
forget_problem() { REASON='' REMEDY='' TEMPORARY=() AT_END=(); }

# Append two lines to a file for each problem: reason and remedy.
after_remaining_check() {
    local command
    set +e
    [ -z "$REASON" ] || printf '%s\n' "${REASON//$'\n'/ }" "${REMEDY//$'\n'/ }" >>"$ANSWER.more"
    for command in "${AT_END[@]}"; do "$command"; done
    [ "${#TEMPORARY[@]}" -eq 0 ] || rm -rf "${TEMPORARY[@]}"
    try_remaining_checks
}
