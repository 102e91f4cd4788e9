#!/bin/bash
# Debian packages, in one transaction a step.

apt_get() { apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -y -q "$@"; }

# Install what is missing of the given packages, without starting anything half configured: the daemons' own
# start-up is the step's business, after their configuration is written.
ensure_packages() {
    local package missing=()
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    note "installing ${missing[*]}"
    # A run that was cut off can leave packages unpacked and not configured.
    dpkg --configure -a
    apt_get update
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\n# tailrack: removed after the installation\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
    fi
    local status=0
    apt_get install --no-install-recommends "${missing[@]}" || status=$?
    grep -q '^# tailrack:' "$policy" && rm -f "$policy"
    [ "$status" -eq 0 ] || fail "apt-get could not install ${missing[*]}" \
        "check the package sources of $HOST_NAME with 'apt-get update', then run up again"
}
