#!/bin/sh
# Start a step on a machine, as the login that brought the files. Root opens none of them: it gets them through pipes.
# Stdin is the step's request. All of this script is read before its last line runs.
#
# $1 action   $2 name of the program   $3 name of the plan   $4 time limit in seconds
# $5 `password`: the first line of stdin is sudo's password. It stays in this shell and in pipes; -k has sudo always read it.
# Both names are SHA-256. This folder has the program, a zip archive compressed by bzip2, and files with a plan per line.
set -eu

INSTALLED=/usr/local/lib/tailrack/program
NO_SCRIPT=75

find_plan() {
    plan=$(sed -n "/^$1 /{s///p;q;}" plans-* 2>/dev/null) || :
    [ "$(printf %s "$plan" | sha256sum)" = "$1  -" ] || { echo "$PWD/$1: not there, or not whole" >&2 && exit "$NO_SCRIPT"; }
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif [ ! "$sudo_password" ]; then sudo -n "$@"; else
        { printf '%s\n' "$sudo_password" && cat; } | sudo -kS -p '' "$@"
    fi
}

# Leave the password empty where sudo needs none: the command would read it.
read_password() {
    unset sudo_password && sudo_password=
    [ ! "$1" ] || IFS= read -r sudo_password
    if [ "$(id -u)" = 0 ] || sudo -kn true 2>/dev/null; then sudo_password=; fi
    [ ! "$sudo_password" ] || as_root true 2>/dev/null </dev/null || {
        printf '%s\n' >&2 "tailrack: sudo does not accept the password of this login" \
            "next: correct sudo_password of the site (pulumi config set --secret), then run up again"
        exit 1
    }
}

# Almost every image has Python. A machine that has none gets it here, because the check of the machine needs it.
install_python() {
    ! command -v python3 >/dev/null || return 0
    { as_root apt-get -qq update && as_root env DEBIAN_FRONTEND=noninteractive apt-get -qqy install --no-install-recommends python3; } >&2 </dev/null || {
        printf '%s\n' >&2 "tailrack: this machine has no python3, and apt-get cannot install it" \
            "next: install python3 on the machine, then run up again"
        exit 1
    }
}

# Put the program in place once per machine and version (components/node/install.py), if this Python can run it. A folder
# without its mark is the rest of an installation that a power cut ended: its files may be empty.
install_program() {
    if read -r mark 2>/dev/null <"$INSTALLED/$1/complete" && [ "$mark" = "$1" ]; then return 0; fi
    cat "$1" 2>/dev/null | as_root python3 -I -S -c 'import sys
if sys.version_info < (3, 10):
    sys.exit("tailrack: this machine has Python %d.%d, and tailrack needs 3.10 or newer\n" % sys.version_info[:2] +
        "next: use Debian 12, Ubuntu 22.04 or newer; or make python3 a newer Python, then run up again")
try:
    import bz2, hashlib, io, zipfile
    archive = bz2.decompress(sys.stdin.buffer.read())
except ImportError as error:
    sys.exit("tailrack: python3 lacks a part of its standard library: %s\n" % error +
        "next: install the whole package python3 on the machine, then run up again")
except (OSError, ValueError):
    archive = b""
if hashlib.sha256(archive).hexdigest() != sys.argv[1]:
    print(sys.argv[2] + ": not there, or not whole", file=sys.stderr)
    sys.exit(int(sys.argv[3]))
exec(zipfile.ZipFile(io.BytesIO(archive)).read("components/node/install.py"))
install(archive, sys.argv[1])' "$1" "$PWD/$1" "$NO_SCRIPT" || explain_status
}

start() {
    find_plan "$3"
    install_python
    install_program "$2"
    answer=$({ printf '%s\n' "$plan" && cat; } | as_root timeout -k 30 "$4" python3 -I -S "$INSTALLED/$2" step "$1") || explain_status
    print_answer
}

# End with the status of the last command, and say what it means unless the program has said so itself (1, 75, 124).
explain_status() {
    status=$?
    case $status in
    1 | 75 | 124) exit "$status" ;;
    137)
        reason="it was killed: for lack of memory, or by hand"
        remedy="look for 'Out of memory' in 'journalctl -k' and at 'free -m' on the machine, and end what uses its memory"
        ;;
    *)
        reason="python3 or sudo ended with status $status, or cannot be run there"
        remedy="run 'sudo -n python3 -V' on the machine; if python3 crashes, run 'apt-get install --reinstall python3-minimal'"
        ;;
    esac
    printf 'tailrack: the step ended without a report; %s\nnext: %s; then run the same command again\n' "$reason" "$remedy" >&2
    exit "$status"
}

# A step is done only if it answered. Other text must fail here: the engine would record it as the step's answer.
print_answer() {
    case $answer in
    *"
"* | [!\{]* | *[!\}] | '')
        echo "tailrack: the step ended with success, but its answer is not one JSON object: another program on this machine prints on stdout, or python3 did nothing" >&2
        echo "next: run 'sudo -n python3 -I -S -c \"print(1)\"' on the machine, which must print only 1; repair what prints more, then run the same command again" >&2
        exit 76
        ;;
    esac
    printf '%s\n' "$answer"
}

read_password "${5:-}"
start "$@"
