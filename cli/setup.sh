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
*) die "cli/setup.sh knows no '$1'; run it without a word, or with 'dev' for what the checks need" ;;
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
    # All that is needed is in the files, so nobody has to look for it; what is never imported is never compiled.
    local words=(--require-hashes --no-deps "${files[@]/#/--requirement=}")
    if ! by_uv "${words[@]}"; then
        printf 'pip does it, as uv cannot\n' >&2
        by_pip "${words[@]}"
    fi
    for name in "${more[@]}"; do touch ".venv/.tailrack-$name"; done
    printf '%s\n' "$wanted" >"$stamp"
}

by_pip() { .venv/bin/python -m pip -q --disable-pip-version-check install --no-compile "$@" >&2; }

# uv does in seconds what pip takes most of a minute of two cores for. It reads none of pip's settings: those that say where
# packages come from are told to it. Fails, for pip to do it, where that cannot be, or uv cannot be had or does not manage.
by_uv() {
    local settings
    settings=$(uvs_settings) || return
    mapfile -t settings <<<"$settings"
    if [ ! -x .venv/bin/uv ]; then by_pip --require-hashes --no-deps --requirement=requirements-setup.txt || return; fi
    env UV_NO_CONFIG=1 "${settings[@]}" .venv/bin/uv pip install -q --python .venv/bin/python "$@" >&2
}

# pip's settings as NAME=VALUE for uv, of which the last one counts. A password in an address is nothing for an environment.
uvs_settings() {
    local all of line name value
    all=$(.venv/bin/python -m pip config list) || return
    for of in global. install. :env:.; do
        while IFS= read -r line; do
            name=${line#"$of"} name=${name%%=*} value=${line#*=} value=${value#\'} value=${value%\'}
            case $line in
            "$of"index-url=*@* | "$of"extra-index-url=*@* | "$of"proxy=*@*) return 1 ;;
            "$of"index-url=*) name=UV_DEFAULT_INDEX ;;
            "$of"extra-index-url=*) name=UV_INDEX ;;
            "$of"find-links=*) name=UV_FIND_LINKS value=${value// /,} ;;
            "$of"cert=*) name=SSL_CERT_FILE ;;
            "$of"proxy=*) name=ALL_PROXY ;;
            "$of"trusted-host=* | "$of"client-cert=* | "$of"no-index=* | "$of"keyring-provider=* | "$of"constraint=*) return 1 ;;
            *) continue ;;
            esac
            printf '%s=%s\n' "$name" "$value"
        done <<<"$all"
    done
    echo UV_LINK_MODE=copy # what one checkout changes in its own is no other's
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
for name in $(.venv/bin/python -m cli.pulumi.providers "$PWD/Pulumi.${STACK:-dev}.yaml"); do
    [ -e ".venv/.tailrack-$name" ] || more+=("$name")
done
have_packages
