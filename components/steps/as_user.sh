#!/bin/bash
# The one way in which root runs a program as somebody else. Whoever has the same uid can stop that program, trace it, take
# its descriptors, have it run for ever, and leave children that hold what it held. So it has three streams, and nothing else
# is open: what it reads lies there already, what it says goes through pipes that root reads up to a limit, for a limited
# time. It has a session of its own and so no terminal, and nothing of root's environment.

# Close all that is open but the three streams. For a shell that runs one program and ends.
close_others() {
    local descriptor
    for descriptor in /proc/self/fd/*; do
        descriptor=${descriptor##*/}
        case $descriptor in 0 | 1 | 2 | *[!0-9]*) ;; *) eval "exec $descriptor>&-" ;; esac
    done
}

# Run words for some seconds, with three streams and nothing else that is open. 124 or 137 where they took longer.
# timeout waits for what it cannot kill, so it is under another one: what is left behind then holds nothing of ours.
within() (
    limit=$1
    shift
    close_others
    exec setsid -w timeout -k 5 "$((limit + 10))" timeout -k 5 "$limit" "$@"
)

# Run words as a user: name, seconds, bytes that they may say on each stream, words. More environment than who it is comes
# by `env` in the words. Stdin is the caller's, and no pipe: the one who writes to it would wait for a reader.
as_user() (
    user=$1 limit=$2 most=$3
    shift 3
    close_others
    cd /
    # Who reads from a pipe waits for all who can write to it, so that ends too.
    {
        {
            within "$limit" env -i PATH="$PATH" HOME=/ USER="$user" LOGNAME="$user" LC_ALL=C.UTF-8 \
                runuser -u "$user" -- "$@" 2>&1 >&3
        } | timeout -k 5 "$((limit + 10))" head -c "$most" >&2
    } 3>&1 | timeout -k 5 "$((limit + 10))" head -c "$most"
)
