#!/bin/bash
# Install the Python dependencies of requirements.txt in .venv, with the argument `dev` those of the checks too, and the
# providers of $STACK (default dev). Do nothing if they are installed already.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'tailrack: %s\n' "$*" >&2; exit 1; }

command -v python3 >/dev/null || die "python3 is missing; install Python 3.11 or newer"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "python3 is $(python3 -V 2>&1); Python 3.11 or newer is needed"

# Packages that were installed once stay for every stack of this checkout, and follow their file.
more=()
[ "${1:-dev}" = dev ] || die "cli/setup.sh has no argument '$1'; run it without an argument, or with 'dev' for the checks"
for file in requirements/*.txt; do
    name=${file#*/} name=${name%.txt}
    if [ "$name" = "${1-}" ] || [ -e ".venv/.tailrack-$name" ]; then more+=("$name"); fi
done

# Install requirements.txt and the files of `more` in .venv, unless they are installed.
stamp=.venv/.tailrack-requirements
have_packages() {
    local name wanted files=(requirements.txt)
    for name in "${more[@]}"; do files+=("requirements/$name.txt"); done
    wanted=$(sort "${files[@]}" | sha256sum)
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
    printf 'setting up Python dependencies in .venv ...\n' >&2
    have_venv
    # The files are complete, so no dependencies need resolving.
    local options=(--require-hashes --no-deps "${files[@]/#/--requirement=}")
    if ! by_uv "${options[@]}"; then
        printf 'uv cannot install the packages; using pip\n' >&2
        by_pip "${options[@]}"
    fi
    for name in "${more[@]}"; do touch ".venv/.tailrack-$name"; done
    printf '%s\n' "$wanted" >"$stamp"
}

by_pip() { .venv/bin/python -m pip -q --disable-pip-version-check install --no-compile "$@" >&2; }

# uv takes seconds and pip most of a minute. uv does not read pip's settings, so this passes the package sources to it.
# It fails, for pip to take over, if a setting has no equivalent, or uv is missing or fails.
by_uv() {
    local settings
    settings=$(uv_settings) || return
    mapfile -t settings <<<"$settings"
    if [ ! -x .venv/bin/uv ]; then by_pip --require-hashes --no-deps --requirement=requirements/setup.txt || return; fi
    env UV_NO_CONFIG=1 "${settings[@]}" .venv/bin/uv pip install -q --python .venv/bin/python "$@" >&2
}

# Print pip's settings as NAME=VALUE for uv; the last one of a name counts. Fail for an address with a password, which
# must not be in an environment.
uv_settings() {
    local all section
    all=$(.venv/bin/python -m pip config list) || return
    all=$(for section in global install :env:; do sed -n "s/^$section\.//p" <<<"$all"; done)
    if grep -qE '^((extra-)?index-url|proxy)=.*@|^(trusted-host|client-cert|no-index|keyring-provider|constraint)=' <<<"$all"; then
        return 1
    fi
    sed -nE "s/='(.*)'\$/=\1/
        s/^index-url=/UV_DEFAULT_INDEX=/p
        s/^extra-index-url=/UV_INDEX=/p
        s/^proxy=/ALL_PROXY=/p
        s/^cert=/SSL_CERT_FILE=/p
        /^find-links=/{ s//UV_FIND_LINKS=/; s/ /,/g; p }" <<<"$all"
    echo UV_LINK_MODE=copy # a change in one checkout's .venv must not change another's
}

have_venv() {
    # A stack with a lab needs Go programs that take minutes to build and no Python packages, so build them meanwhile if
    # the config looks like such a stack. Later uses of the programs wait for this build or report its error.
    if command -v go >/dev/null && grep -qs 'kind: lab' "Pulumi.${STACK:-dev}.yaml"; then
        mkdir -p .tailrack/cache
        python3 -m lab.programs >.tailrack/cache/go.log 2>&1 </dev/null &
    fi
    # In Debian it is a separate package.
    python3 -m venv .venv 2>/dev/null || { install_packages python3-venv && python3 -m venv .venv; }
}

# Run apt-get as root, after a refresh of its lists.
install_packages() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    printf 'installing %s\n' "$*" >&2
    "${as_root[@]}" apt-get -q update >&2 || die "cannot refresh the list of packages; run as root or with sudo"
    "${as_root[@]}" apt-get -qy install --no-install-recommends "$@" >&2 || die "cannot install $*; see above"
}

# Programs that tests run. Prometheus is unpacked, because its package would start a server on this machine.
have_test_tools() {
    if command -v setfacl >/dev/null && command -v lua5.4 >/dev/null && [ -x .tailrack/tools/usr/bin/promtool ]; then
        return
    fi
    install_packages acl lua5.4
    rm -rf .tailrack/tools && mkdir -p .tailrack/tools
    (cd .tailrack/tools && apt-get -q download prometheus && dpkg-deb -x prometheus_*.deb .) >&2 ||
        die "cannot download the package prometheus; see above"
    rm .tailrack/tools/prometheus_*.deb
}

have_packages
# Install providers only for a stack that needs them, because the CLI fetches the provider of every installed SDK.
for name in $(.venv/bin/python -m cli.pulumi.providers "$PWD/Pulumi.${STACK:-dev}.yaml"); do
    [ -e ".venv/.tailrack-$name" ] || more+=("$name")
done
have_packages
if [ "${1-}" = dev ]; then have_test_tools; fi
