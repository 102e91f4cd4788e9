#!/bin/bash
# Functions that all steps share: the log, locks, error reports, and files that converge.
# The step (components/node/step/shell.py) assigns the values, and then calls functions, one after the other.
#
# HOST_NAME   the machine that the step runs on
# STEP_NAME   the name of the step, its resource and its log
# STEP_REPAIR a text of the config whose change runs the step again, or empty
# ANSWER      file for the reason of a failure

STATE_DIR=/var/lib/tailrack
LOG_DIR=/var/log/tailrack
# Locks and answers of running steps. Only root can open them: a user who can open a file can lock it.
PRIVATE_DIR=/run/tailrack-private

# Functions that finish background work before the step answers.
LATER=()
# The step's result; the reason and remedy of a failure.
RESULT='' REASON='' REMEDY=''
# Functions that run at the end of the work, even after a failure; and temporary files.
AT_END=() TEMPORARY=()

export DEBIAN_FRONTEND=noninteractive LC_ALL=C
# Hardened images give logins 027 or 077, and sudo keeps it: users and apt could not read the folders.
umask 022

# Write a line to the log. People see its last lines after a failure.
note() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }

# Stop with a reason and a remedy.
fail() {
    REASON=$1
    REMEDY=${2:-}
    exit 1
}

# Print the error of writing a file in a directory; nothing if there is room.
no_room_in() {
    local error=''
    error=$({ head -c 65536 /dev/zero >"$1/.tailrack-room"; } 2>&1) || printf '%s' "${error##*: }"
    rm -f "$1/.tailrack-room"
}

# Add a key and a JSON value to the result.
result() {
    [ -n "$2" ] || fail "the step found no $1 on $HOST_NAME"
    RESULT+="${RESULT:+,}\"$1\":$2"
}

# Run a function of leaving: an error in it does not end it.
leave_alone() {
    set +e
    "$@"
    set -e
}

# Do the work that functions left for the end, and send the result.
finish_calls() {
    local finish
    for finish in "${LATER[@]}"; do "$finish"; done </dev/null 3<&- 4>&-
    LATER=()
    printf '{%s}\n' "$RESULT" >&4
}

# Clean up, and leave the reason of a failure for the step.
end_calls() {
    local status=$? cleanup
    for cleanup in "${AT_END[@]}"; do "$cleanup" || note "$cleanup failed"; done
    [ ${#TEMPORARY[@]} -eq 0 ] || rm -rf "${TEMPORARY[@]}"
    [ "$status" -ne 0 ] || return 0
    write_new "$ANSWER" "{\"reason\":$(json_string "$REASON"),\"remedy\":$(json_string "$REMEDY")}"
}

# Print a text as a JSON string.
json_string() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\t'/\\t}
    text=${text//$'\r'/\\r}
    text=${text//$'\n'/\\n}
    local code byte
    if [[ $text == *[$'\x01'-$'\x1f']* ]]; then
        for code in {01..08} 0b 0c 0e 0f {10..19} 1{a..f}; do
            printf -v byte '%b' "\\x$code"
            text=${text//"$byte"/"\\u00$code"}
        done
    fi
    printf '"%s"' "$text"
}

# Succeed if a file contains exactly a text and a newline. It starts no process: a step calls it for fifty files.
has_text() {
    local content=''
    # read fails at the end of a file without a zero byte.
    ! IFS= read -r -d '' content <"$1" && [ "$content" = "$2"$'\n' ]
}

# Succeed if the text $2 has the line $1. It starts no process.
has_line() { [[ $'\n'$2$'\n' == *$'\n'"$1"$'\n'* ]]; }

# Make a temporary file, or with -d a folder, that is removed at the end of the step, and put its path into a variable.
make_temporary() {
    local temporary
    temporary=$(mktemp "${@:2}")
    TEMPORARY+=("$temporary")
    printf -v "$1" '%s' "$temporary"
}

# Write a text into a new file that only root can read. With -C an existing file is never written.
write_new() {
    local status=0
    [ -n "${UMASK:-}" ] || UMASK=$(umask)
    umask 077
    set -C
    printf '%s\n' "$2" >"$1" || status=$?
    set +C
    umask "$UMASK"
    return "$status"
}

# Set the owner of a file. It starts no process if root owns the file already.
give_to() { [[ $1 == root:root && $EUID -eq 0 && -O $2 && -G $2 ]] || chown "$1" "$2"; }

# Set the modes of files and rename them: mode, path and new path of each. One process does all: a machine's first `up`
# has eighty files, and starting processes takes most of that time. Perl comes with dpkg.
# If the new path is a folder, that is an error: mv would move the file into it.
put_in_place() {
    perl -e 'while (my ($mode, $from, $to) = splice @ARGV, 0, 3) {
        chmod oct $mode, $from or die "$from: $!\n";
        $from eq $to or rename $from, $to or die "$to: $!\n";
    }' "$@"
}

# Write files: path, mode, owner and text of each. Each is written beside its path and renamed, so that no process reads
# half of it. Set CHANGED=yes if a text changed.
ensure_files() {
    local path mode owner text renames=() written=() fresh=()
    while [ $# -gt 0 ]; do
        path=$1 mode=$2 owner=$3 text=$4
        shift 4
        # Replace a link; never follow it.
        if [ -f "$path" ] && [ ! -L "$path" ] && has_text "$path" "$text"; then
            give_to "$owner" "$path"
            renames+=("$mode" "$path" "$path")
            continue
        fi
        [ -d "${path%/*}" ] || mkdir -p "${path%/*}"
        fresh+=("$path.$BASHPID.$RANDOM")
        if ! write_new "${fresh[-1]}" "$text"; then
            rm -f "${fresh[@]}"
            fail "cannot write $path" "make room on $HOST_NAME (df -h $(dirname "$path")), then run up again"
        fi
        give_to "$owner" "${fresh[-1]}"
        renames+=("$mode" "${fresh[-1]}" "$path")
        written+=("$path")
        # shellcheck disable=SC2034  # read by callers
        CHANGED=yes
    done
    [ ${#renames[@]} -eq 0 ] || put_in_place "${renames[@]}" || return
    for path in "${written[@]}"; do note "wrote $path"; done
}

# Write one file, like ensure_files.
ensure_file() { ensure_files "$@"; }

# Make systemd read the current files of units. It reloads only if systemd has an old version of one: a reload takes a
# quarter of a second, and a machine's first `up` would have twenty. systemd finds units that it has not loaded without
# a reload.
reload_units() {
    local state unit file stale=''
    state=$(systemctl show -P NeedDaemonReload -P DropInPaths "$@") || return # a template has no state
    state=" ${state//$'\n'/ } "
    [[ $state != *' yes '* ]] || stale=yes
    # systemd of Debian 12 answers "no" if a unit's .d folder is newer than its last reload.
    for unit in "$@"; do
        for file in "/etc/systemd/system/$unit.d"/*.conf; do
            if [ -e "$file" ] && [[ $state != *" $file "* ]]; then stale=yes; fi
        done
    done
    [ -z "$stale" ] || systemctl daemon-reload
}

# Start units at every boot; with --now before them, also now.
enable_units() {
    local now=''
    if [ "$1" = --now ]; then
        now=yes
        shift
    fi
    # --root=/ makes only the links for the next boot, without systemd, which would mark all loaded units as outdated.
    # Skip update-rc.d too: it reloads systemd for daemons with a script in /etc/init.d.
    SYSTEMCTL_SKIP_SYSV=1 systemctl --root=/ enable -q "$@" || return
    [ -z "$now" ] || systemctl start "$@"
}

# Wait until a command succeeds: seconds, then the command. Its output stays in the log. Most waits end within a second
# (slurmd registers with its controller after two thirds of one), and a step waits a dozen times: so the first pauses
# are short.
wait_until() {
    local limit=$1 begin=$SECONDS pause
    local pauses=(0.1 0.2 0.2 0.2 0.2)
    shift
    until "$@"; do
        [ $((SECONDS - begin)) -ge "$limit" ] && return 1
        pause=${pauses[0]:-0.5} pauses=("${pauses[@]:1}")
        sleep "$pause"
    done
}
