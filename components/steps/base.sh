#!/bin/bash
# What every step shares: the log, one step at a time on a host, the error a person reads, files that converge.
# Every script is sent on stdin behind a header of quoted assignments (components/steps/step.py).
#
# HOST_NAME   the machine it runs on
# STEP_NAME   the step, as everybody calls it: the resource's name, and the log's
# STEP_REPAIR a text of the config that is changed to run the step again; empty where nobody asked for that
# STEP_LOCK   the lock that the step holds from its beginning, empty for one that takes it for its changes alone

STATE_DIR=/var/lib/tailrack
LOG_DIR=/var/log/tailrack
# Locks, and what a step is about to answer, where only root can open them: whoever can open a file can lock it.
PRIVATE_DIR=/run/tailrack-private
# Seconds to wait for another step on this host: one that was cut off may still be at work.
LOCK_WAIT=600

# Whether systemd is to read its units anew (reload_units_later).
UNITS_STALE=''
# Functions that see to the end of what goes on beside the rest of a step, before it answers.
LATER=()
# What a step tells the program; whether it has the host's lock; why it stopped, and what to do. The file by which it
# answers, whether its work is done, and whether it has answered.
RESULT='' LOCKED='' REASON='' REMEDY='' ANSWER='' WORKED='' ANSWERED=''
# Functions that end what the step holds of others, whether its work ends well or not; and what it has made for itself alone.
AT_END=() TEMPORARY=()

export DEBIAN_FRONTEND=noninteractive LC_ALL=C
# The login's may be 027 or 077, as on hardened images, and sudo keeps it: folders would be closed to users and to apt.
umask 022

# Say what is done now. Goes to the log; only the last lines of it are seen, and only after a failure.
note() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }

# Stop with one line of what happened and one of what to do.
fail() {
    REASON=$1
    REMEDY=${2:-"read $LOG_DIR/$STEP_NAME.log on $HOST_NAME, then run up again"}
    exit 1
}

# What the system says to a file of some size in a directory; nothing where there is room.
no_room_in() {
    local said=''
    said=$({ head -c 65536 /dev/zero >"$1/.tailrack-room"; } 2>&1) || printf '%s' "${said##*: }"
    rm -f "$1/.tailrack-room"
}

report_failure() {
    local status=$? place said
    if [ "$status" -eq 0 ]; then
        # A shell that is ended by a signal has none.
        if [ -z "$ANSWER" ] || [ -n "$ANSWERED" ]; then return 0; fi
        status=143 REASON='it was ended, by its time limit or by hand'
    fi
    # A full disk shows itself as any odd failure, and may have taken the log away.
    for place in "$LOG_DIR" "$STATE_DIR" /etc /var; do
        said=$(no_room_in "$place")
        [ -n "$said" ] || continue
        REASON="${REASON:+$REASON; }$place: $said"
        REMEDY="make room in $place on $HOST_NAME (see 'df -h $place'), then run up again"
        break
    done
    {
        printf 'tailrack: %s: step %s failed%s\n' "$HOST_NAME" "$STEP_NAME" "${REASON:+: $REASON}"
        if [ -s "$LOG_DIR/$STEP_NAME.log" ]; then
            printf -- '--- last lines of %s on %s\n' "$LOG_DIR/$STEP_NAME.log" "$HOST_NAME"
            tail -n 15 "$LOG_DIR/$STEP_NAME.log"
            printf -- '---\n'
        fi
        printf 'next: %s\n' "${REMEDY:-"ssh to $HOST_NAME, see $LOG_DIR/$STEP_NAME.log, repair, then run up again"}"
    } >&2
    [ -z "$ANSWER" ] || rm -f "$ANSWER" "$ANSWER.why"
    exit "$status"
}

# Be the only step that changes this host, from here to the end of the script. Once is enough.
take_lock() {
    [ -z "$LOCKED" ] || return 0
    local file=$PRIVATE_DIR/${1:-tailrack}.lock
    install -d -m 0700 "$PRIVATE_DIR"
    exec 9>"$file"
    flock -w "$LOCK_WAIT" 9 || fail "another step has held $file for ${LOCK_WAIT}s" \
        "see 'fuser -v $file' on $HOST_NAME"
    LOCKED=yes
}

# Add a value to what the step tells the program: a key and a JSON value.
result() {
    [ -n "$2" ] || fail "the step found no $1 on $HOST_NAME"
    RESULT+="${RESULT:+,}\"$1\":$2"
}

# Whether this step is undone in vain: another one of its name has run since, here or by SSH as this one did not. A head
# node that was reached by SSH and is local now has its steps made anew; what these have made is not the old ones' to undo.
# The file says that the last one was a local command.
made_anew() { if [ "$1" = here ]; then [ ! -e "$HERE_FILE" ]; else [ -e "$HERE_FILE" ]; fi; }

# Run `up` or `down`, and print the step's result, one JSON object. The second word is `here` for a local command, and
# empty for one by SSH. Only this shell has the connection's stdout and stderr: the work is done by another one, which
# writes to the log and answers by a file of root's. So no program that a step starts can answer in its place, or keep
# the connection open.
dispatch() {
    local action=${1:?up or down} way=${2:-} status
    trap report_failure EXIT
    mkdir -p "$LOG_DIR" "$STATE_DIR" || fail "cannot make $LOG_DIR and $STATE_DIR"
    open_folders
    install -d -m 0700 "$PRIVATE_DIR"
    ANSWER=$(mktemp "$PRIVATE_DIR/$STEP_NAME.XXXXXX")
    set +e
    (
        set -e
        trap hand_over EXIT
        work "$action" "$way"
    ) >"$LOG_DIR/$STEP_NAME.log" 2>&1
    status=$?
    set -e
    if [ "$status" -ne 0 ]; then
        # shellcheck source=/dev/null
        [ ! -s "$ANSWER.why" ] || . "$ANSWER.why"
        exit "$status"
    fi
    cat "$ANSWER"
    ANSWERED=yes
    rm -f "$ANSWER"
}

# Folders of the cluster's own that users have to pass, as a step of an earlier release may have made them under a login's
# umask. What is secret in them is in files and folders that are closed themselves.
open_folders() {
    local folder folders=()
    for folder in "$STATE_DIR" /etc/tailrack /usr/local/lib/tailrack; do
        if [ -d "$folder" ] && [ ! -L "$folder" ]; then folders+=("$folder"); fi
    done
    chmod 0755 "${folders[@]}"
}

# What the shell that works leaves for the one that answers: the result, or why there is none.
hand_over() {
    local status=$? each
    for each in "${AT_END[@]}"; do "$each" || note "$each failed"; done
    [ ${#TEMPORARY[@]} -eq 0 ] || rm -rf "${TEMPORARY[@]}"
    if [ "$status" -eq 0 ] && [ -n "$WORKED" ]; then
        printf '{%s}\n' "$RESULT" >"$ANSWER"
        return
    fi
    printf '%s=%q\n' REASON "$REASON" REMEDY "$REMEDY" >"$ANSWER.why"
    [ "$status" -ne 0 ] || exit 143
}

# Do what the step does. `up` or `down`; `here` for a local command
work() {
    HERE_FILE=$STATE_DIR/here/$STEP_NAME
    [ -z "$STEP_LOCK" ] || take_lock "$STEP_LOCK"
    # What no node waits for gives way to what they wait for: members' steps here, slurmctld, the share, jobs.
    [ "$STEP_LOCK" != tailrack-services ] || renice -n 5 -p "$BASHPID" >/dev/null || note "going on at the others' priority"
    note "$STEP_NAME $1 on $HOST_NAME${STEP_REPAIR:+, repair: $STEP_REPAIR}"
    case $1,$2 in
    up,here) mkdir -p "${HERE_FILE%/*}" && : >"$HERE_FILE" ;;
    up,) rm -f "$HERE_FILE" ;;
    esac
    use_proxy
    if [ "$1" = down ] && made_anew "$2"; then
        note "made anew by another step of this name: nothing to undo"
    else
        "$1"
        local each
        for each in "${LATER[@]}"; do "$each"; done
    fi
    note "done in ${SECONDS}s"
    WORKED=yes
}

# Print true or false: whether a command succeeds.
yes_no() { if "$@" >/dev/null 2>&1; then echo true; else echo false; fi; }

# Quote a text as a JSON string.
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

# Whether a file has this text and a newline, and nothing else. Without another process: a step asks this of fifty files.
has_text() {
    local there=''
    # What has no zero byte is read to its end, which read tells by failing.
    ! IFS= read -r -d '' there <"$1" && [ "$there" = "$2"$'\n' ]
}

# Whether a text, the second, has a line: without another process, too.
has_line() { [[ $'\n'$2$'\n' == *$'\n'"$1"$'\n'* ]]; }

# Make a file, or with -d a folder, that goes with the step, however that ends, and put its path into a variable.
make_temporary() {
    local made
    made=$(mktemp "${@:2}")
    TEMPORARY+=("$made")
    printf -v "$1" '%s' "$made"
}

# Write a text into a file that is made for it, which nobody else can read yet. (-C: nothing that is there is written.)
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

# Give a file to its owner. What root has made is root's already, and need not be given by a process more.
give_to() { [[ $1 == root:root && $EUID -eq 0 && -O $2 && -G $2 ]] || chown "$1" "$2"; }

# Give files their modes and rename them: mode, path and new path of each. One process for all of them: a machine's first `up`
# has eighty files, and starting a process for each is most of what they take. Perl is there wherever dpkg is.
# A folder in the way is an error, not a place for the file.
put_in_place() {
    perl -e 'while (my ($mode, $from, $to) = splice @ARGV, 0, 3) {
        chmod oct $mode, $from or die "$from: $!\n";
        $from eq $to or rename $from, $to or die "$to: $!\n";
    }' "$@"
}

# Bring files to texts, modes and owners: path, mode, owner and text of each. Each is written beside its place and renamed, so
# that nobody reads half of it. Sets CHANGED=yes when a text was another one before.
ensure_files() {
    local path mode owner text places=() written=() fresh=()
    while [ $# -gt 0 ]; do
        path=$1 mode=$2 owner=$3 text=$4
        shift 4
        # A link is replaced, and never followed.
        if [ -f "$path" ] && [ ! -L "$path" ] && has_text "$path" "$text"; then
            give_to "$owner" "$path"
            places+=("$mode" "$path" "$path")
            continue
        fi
        [ -d "${path%/*}" ] || mkdir -p "${path%/*}"
        fresh+=("$path.$BASHPID.$RANDOM")
        if ! write_new "${fresh[-1]}" "$text"; then
            rm -f "${fresh[@]}"
            fail "cannot write $path" "make room on $HOST_NAME (df -h $(dirname "$path")), then run up again"
        fi
        give_to "$owner" "${fresh[-1]}"
        places+=("$mode" "${fresh[-1]}" "$path")
        written+=("$path")
        # shellcheck disable=SC2034  # read by callers
        CHANGED=yes
    done
    [ ${#places[@]} -eq 0 ] || put_in_place "${places[@]}" || return
    for path in "${written[@]}"; do note "wrote $path"; done
}

# The same of one.
ensure_file() { ensure_files "$@"; }

# Have systemd know units as their files are now. What it has not loaded it finds by itself, and reading everything anew takes a
# quarter of a second, of which a first `up` had twenty on a machine: so only where it has one of them as it was.
reload_units() {
    local said unit file stale=''
    said=$(systemctl show -P NeedDaemonReload -P DropInPaths "$@") || return # a template among them: it has no state
    said=" ${said//$'\n'/ } "
    [[ $said != *' yes '* ]] || stale=yes
    # Of a folder that was not there when it last read its units a systemd of Debian 12 knows nothing, and says "no".
    for unit in "$@"; do
        for file in "/etc/systemd/system/$unit.d"/*.conf; do
            if [ -e "$file" ] && [[ $said != *" $file "* ]]; then stale=yes; fi
        done
    done
    if [ -n "$stale" ]; then
        systemctl daemon-reload
        UNITS_STALE=''
    fi
}

# The same of units for which nobody in this step waits: together with the next that somebody does wait for, or at its end.
reload_units_later() {
    [ -n "$UNITS_STALE" ] || LATER+=(reload_stale_units)
    UNITS_STALE=yes
}

reload_stale_units() {
    if [ -n "$UNITS_STALE" ]; then systemctl daemon-reload; fi
    UNITS_STALE=''
}

# Have units start at every boot; with --now before them, now too.
enable_units() {
    local now=''
    if [ "$1" = --now ]; then
        now=yes
        shift
    fi
    # Links for the next boot alone, which stay where they are there. Made past systemd, which would take all that it has loaded
    # for outdated, and without update-rc.d, which has it read everything anew for daemons that have a script in /etc/init.d too.
    SYSTEMCTL_SKIP_SYSV=1 systemctl --root=/ enable -q "$@" || return
    [ -z "$now" ] || systemctl start "$@"
}

# Wait until a command succeeds: seconds, then the command. The command's last words stay in the log. Most of what is waited
# for comes within a second (slurmd is known to its controller after two thirds of one), and a step waits a dozen times: so the
# first looks are close together.
wait_until() {
    local limit=$1 begin=$SECONDS nap
    local naps=(0.1 0.2 0.2 0.2 0.2)
    shift
    until "$@"; do
        [ $((SECONDS - begin)) -ge "$limit" ] && return 1
        nap=${naps[0]:-0.5} naps=("${naps[@]:1}")
        sleep "$nap"
    done
}
