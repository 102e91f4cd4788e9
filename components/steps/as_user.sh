#!/bin/bash
# The only way for root to run a program as another account. A process with the same uid can stop the program, trace it,
# take its descriptors, let it run forever, and leave children that keep its descriptors. So the program has only three
# open streams: its input exists before it starts, and root reads its output through pipes, up to a limit of bytes and
# seconds. It has its own session, so no terminal, and none of root's environment.

# Close all descriptors except the three streams, in a shell that runs one program and ends.
close_others() {
    local descriptor
    for descriptor in /proc/self/fd/*; do
        descriptor=${descriptor##*/}
        case $descriptor in 0 | 1 | 2 | *[!0-9]*) ;; *) eval "exec $descriptor>&-" ;; esac
    done
}

# Run a command for $1 seconds with only three open streams. The status is 124 or 137 if it took longer.
# timeout waits for a process that it cannot kill, so a second timeout runs it. A process that remains has none of our
# files.
within() (
    limit=$1
    shift
    close_others
    exec setsid -w timeout -k 5 "$((limit + 10))" timeout -k 5 "$limit" "$@"
)

# Run a command as a user: name, seconds, greatest number of bytes on each stream, command. Pass more environment with
# `env`. Stdin is the caller's and must not be a pipe: its writer would wait for a reader.
as_user() (
    user=$1 limit=$2 most=$3
    shift 3
    close_others
    cd /
    # `head` returns only when every writer has closed the pipe, so it has a timeout too.
    {
        {
            within "$limit" env -i PATH="$PATH" HOME=/ USER="$user" LOGNAME="$user" LC_ALL=C.UTF-8 \
                runuser -u "$user" -- "$@" 2>&1 >&3
        } | timeout -k 5 "$((limit + 10))" head -c "$most" >&2
    } 3>&1 | timeout -k 5 "$((limit + 10))" head -c "$most"
)
