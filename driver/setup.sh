#!/bin/bash
# Python dependencies in .venv, exactly those of requirements.txt; with the word `dev`, those of the checks too. Does
# nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'tailrack: %s\n' "$*" >&2; exit 1; }

command -v python3 >/dev/null || die "python3 is not here; install Python 3.11 or newer"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "python3 is $(python3 -V 2>&1); Python 3.11 or newer is needed"

# What was installed once stays, for every stack of this checkout, and is kept as its file has it.
more=()
case ${1-} in
'') if [ -e .venv/.tailrack-dev ]; then more+=(dev); fi ;;
dev) more+=(dev) ;;
*) die "driver/setup.sh knows no '$1'; run it without a word, or with 'dev' for what the checks need" ;;
esac
for file in requirements-*.txt; do # of providers that a stack once needed
    name=${file#requirements-} name=${name%.txt}
    if [ "$name" != dev ] && [ -e ".venv/.tailrack-$name" ]; then more+=("$name"); fi
done

# Have .venv hold requirements.txt and those of `more`, unless it does.
stamp=.venv/.tailrack-requirements
have_packages() {
    local name wanted files=(requirements.txt)
    for name in "${more[@]}"; do files+=("requirements-$name.txt"); done
    wanted=$(cat "${files[@]}" | sha256sum)
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
    printf 'setting up Python dependencies in .venv ...\n' >&2
    have_venv
    .venv/bin/python -m pip -q --disable-pip-version-check install --require-hashes "${files[@]/#/--requirement=}" >&2
    for name in "${more[@]}"; do touch ".venv/.tailrack-$name"; done
    printf '%s\n' "$wanted" >"$stamp"
}

have_venv() {
    local as_root=()
    # A stack with a lab needs programs that Go takes minutes for, and nothing of what follows: they are built meanwhile,
    # where the file looks like one (nothing here parses it yet). Whoever needs them waits for this, or says what is wrong.
    if command -v go >/dev/null && grep -qs 'kind: lab' "Pulumi.${STACK:-dev}.yaml"; then
        mkdir -p .tailrack/cache
        python3 -m lab.binaries >.tailrack/cache/go.log 2>&1 </dev/null &
    fi
    if ! python3 -m venv .venv 2>/dev/null; then
        printf 'installing python3-venv, which Debian keeps in a package of its own\n' >&2
        [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
        if ! { "${as_root[@]}" apt-get -q update && "${as_root[@]}" apt-get -qy install python3-venv; } >&2; then
            die "cannot install python3-venv; run as root or with sudo"
        fi
        python3 -m venv .venv
    fi
}

have_packages
# Only for a stack that needs them: the CLI fetches the provider of every SDK that it finds installed.
for name in $(.venv/bin/python -m driver.providers "$PWD/Pulumi.${STACK:-dev}.yaml"); do
    [ -e ".venv/.tailrack-$name" ] || more+=("$name")
done
have_packages
