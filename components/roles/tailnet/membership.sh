#!/bin/bash
# Which tailnet this machine is in, and whose doing that is: the cluster's, or that of whoever had it before.
# Read without jq, which a machine at first contact may lack: tailscale prints its JSON one field a line.
#
# TAILNET_TAG          tag of this machine on the tailnet
# TAILNET_CONTROL_URL  control server, empty for Tailscale's own
# NODE_ADOPT           true where the machine is to stay in its tailnet as it is

# Written before the cluster brings a machine into a tailnet: a line of control server and name, two while it moves.
MEMBERSHIP_FILE=$STATE_DIR/tailnet
TAILSCALE_OWN=https://controlplane.tailscale.com
# The first with `tailscale wait`.
OLDEST_TAILSCALE=1.96
# Seconds for a log-out that goes on: it waits for a control server that may be slow.
LOGOUT_LIMIT=90

# The first of the fields with this name.
field_of() {
    awk -v name="\"$1\":" '$1 == name && !seen++ { sub(/^[^:]*: /, ""); sub(/,$/, ""); gsub(/"/, ""); print }'
}
status_field() { { tailscale status --json --peers=false 2>/dev/null || :; } | field_of "$1"; }
preference() { { tailscale debug prefs 2>/dev/null || :; } | field_of "$1"; }

# The name that the control server gave, which is another one than asked for where that was taken.
granted_name() {
    local name
    name=$(status_field DNSName)
    printf '%s' "${name%%.*}"
}

wanted_control_url() { if [ -n "$TAILNET_CONTROL_URL" ]; then printf '%s' "$TAILNET_CONTROL_URL"; else printf '%s' "$TAILSCALE_OWN"; fi; }

# Tailscale's own has two addresses.
control_url() {
    local url
    url=$(preference ControlURL)
    if [ "$url" = https://login.tailscale.com ]; then url=$TAILSCALE_OWN; fi
    printf '%s' "${url%/}"
}

membership() { printf '%s %s' "$1" "$HOST_NAME"; }

daemon_there() { [ -S /var/run/tailscale/tailscaled.sock ] || systemctl -q is-active tailscaled; }

# True for a machine with a log-in, also one that is stopped or whose log-in has ended.
in_tailnet() {
    # Without its daemon tailscale waits two seconds for it.
    if daemon_there; then
        case $(preference LoggedOut) in
        false) return 0 ;;
        true) return 1 ;;
        esac
    fi
    # The daemon does not run: what it would start with.
    grep -qs '"profile-' /var/lib/tailscale/tailscaled.state
}

brought_by_the_cluster() {
    local url
    url=$(control_url)
    if [ -n "$url" ]; then
        [ "$(preference Hostname)" = "$HOST_NAME" ] && grep -qsxF "$(membership "$url")" "$MEMBERSHIP_FILE"
    else
        grep -qs " $HOST_NAME\$" "$MEMBERSHIP_FILE"
    fi
}

logged_out_before() { ! systemctl -q is-active tailrack-logout.service; }

# A machine that has just left may still be on its way out.
let_leaving_end() {
    wait_until "$LOGOUT_LIMIT" logged_out_before ||
        fail "$HOST_NAME has been leaving a tailnet for ${LOGOUT_LIMIT}s" "see 'journalctl -u tailrack-logout' on $HOST_NAME"
}

tailscale_there() { command -v tailscale >/dev/null; }

# The snap's daemon has another unit and another socket: a second one would be installed beside it.
refuse_snap() {
    [ ! -e /etc/systemd/system/snap.tailscale.tailscaled.service ] || fail \
        "tailscale is a snap here, whose daemon is none of the units that the cluster waits for" \
        "run 'snap remove tailscale' on $HOST_NAME, which takes it out of its tailnet, and with adopt: true install \
Tailscale's own package and join it again; then run up again"
}

new_enough() {
    local version
    version=$(tailscale version | sed -n 1p)
    [ "$(printf '%s\n%s\n' "$OLDEST_TAILSCALE" "$version" | sort -V | head -n 1)" = "$OLDEST_TAILSCALE" ] ||
        fail "tailscale $version here is too old; the cluster's units need 'tailscale wait', which came with $OLDEST_TAILSCALE" \
            "upgrade it: 'tailscale update' on $HOST_NAME, or by its package; then run up again"
}

# A machine that is in a tailnet of its own is not taken out of it.
refuse_another_tailnet() {
    in_tailnet || return 0
    brought_by_the_cluster && return
    local name
    name=$(status_field DNSName)
    fail "this machine is in a tailnet already${name:+, as ${name%.}}, of the control server $(control_url); it is not taken out of it" \
        "run 'tailscale logout' on $HOST_NAME; or, if that is the cluster's tailnet, set adopt: true for $HOST_NAME and all stays as it is; then run up again"
}

# A tag stands alone on its line, as the name of one in no other place does.
tagged() { [ -z "$TAILNET_TAG" ] || tailscale status --json --peers=false | grep -E "^[[:space:]]*\"$TAILNET_TAG\",?\$" >/dev/null; }

# A machine that is adopted must be what others are made to be; nothing of it is changed.
require_adoptable() {
    local state url name way_out="join $HOST_NAME to the cluster's tailnet by hand, or leave out adopt"
    tailscale_there || fail "adopt: true, and tailscale is not installed here" "$way_out"
    state=$(status_field BackendState)
    [ "$state" = Running ] || fail "adopt: true, and this machine is in no tailnet now (tailscale: ${state:-no answer})" "$way_out"
    url=$(control_url)
    [ "$url" = "$(wanted_control_url)" ] ||
        fail "adopt: true, and this machine's tailnet is of $url; the cluster's is of $(wanted_control_url)" "$way_out"
    [ -e /sys/class/net/tailscale0 ] && [ -n "$(tailscale ip -4)" ] ||
        fail "adopt: true, and there is no interface tailscale0 with an IPv4 address; Slurm needs one" \
            "start tailscaled on $HOST_NAME with a kernel interface of that name"
    [ "$(preference ShieldsUp)" != true ] ||
        fail "adopt: true, and tailscale's shields are up here: it lets no connection of the cluster's other machines in" \
            "run 'tailscale set --shields-up=false' on $HOST_NAME, or leave it out"
    # Rules of the tailnet are from tag to tag.
    tagged || fail "adopt: true, and this machine does not have the tag $TAILNET_TAG in its tailnet: the cluster's other machines \
would not reach it" "run 'tailscale up --advertise-tags=$TAILNET_TAG' on $HOST_NAME, with the other flags that it names; the \
machine is its owner's no more then, but the tag's (docs/tailnet.md, a machine with an owner)"
    name=$(granted_name)
    [ "$name" = "$HOST_NAME" ] ||
        fail "adopt: true, and the tailnet calls this machine $name; others would look for it as $HOST_NAME" \
            "run 'tailscale set --hostname=$HOST_NAME' on it, or call the host $name in the config"
}

# The DNS servers of this machine, one per line; behind systemd-resolved's stub, those that it asks.
dns_servers() {
    { cat /etc/resolv.conf /run/systemd/resolve/resolv.conf 2>/dev/null || :; } | awk '$1 == "nameserver" && !seen[$2]++ { print $2 }'
}
