#!/bin/bash
# Find out which tailnet this machine is in, and whether tailrack joined it. Uses no jq, which a new machine may lack: tailscale
# prints its JSON with one field per line.
#
# TAILNET_TAG          tag of this machine on the tailnet
# TAILNET_CONTROL_URL  control server, empty for Tailscale's own
# NODE_ADOPT           true if the machine stays in its tailnet unchanged

# Written before a join: a line with control server and name; two lines during a move to another tailnet.
MEMBERSHIP_FILE=$STATE_DIR/tailnet
TAILSCALE_OWN=https://controlplane.tailscale.com
# The first version with `tailscale wait`.
OLDEST_TAILSCALE=1.96
# Seconds for a running logout, which waits for the control server.
LOGOUT_LIMIT=90

# Print the first field with this name.
field_of() {
    awk -v name="\"$1\":" '$1 == name && !seen++ { sub(/^[^:]*: /, ""); sub(/,$/, ""); gsub(/"/, ""); print }'
}
status_field() { { tailscale status --json --peers=false 2>/dev/null || :; } | field_of "$1"; }
preference() { { tailscale debug prefs 2>/dev/null || :; } | field_of "$1"; }

# Print the name that the control server gave, which differs from the requested one if that was taken.
granted_name() {
    local name
    name=$(status_field DNSName)
    printf '%s' "${name%%.*}"
}

wanted_control_url() { if [ -n "$TAILNET_CONTROL_URL" ]; then printf '%s' "$TAILNET_CONTROL_URL"; else printf '%s' "$TAILSCALE_OWN"; fi; }

# Print the control server in use. Tailscale's own has two addresses.
control_url() {
    local url
    url=$(preference ControlURL)
    if [ "$url" = https://login.tailscale.com ]; then url=$TAILSCALE_OWN; fi
    printf '%s' "${url%/}"
}

membership() { printf '%s %s' "$1" "$HOST_NAME"; }

daemon_there() { [ -S /var/run/tailscale/tailscaled.sock ] || systemctl -q is-active tailscaled; }

# Succeed if the machine has a login, also a stopped or expired one.
in_tailnet() {
    # Without its daemon, tailscale would wait two seconds.
    if daemon_there; then
        case $(preference LoggedOut) in
        false) return 0 ;;
        true) return 1 ;;
        esac
    fi
    # The daemon does not run: read the state with which it would start.
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

# Wait for a logout that is still running.
let_leaving_end() {
    wait_until "$LOGOUT_LIMIT" logged_out_before ||
        fail "$HOST_NAME has been leaving a tailnet for ${LOGOUT_LIMIT}s" "see 'journalctl -u tailrack-logout' on $HOST_NAME"
}

tailscale_there() { command -v tailscale >/dev/null; }

# Refuse the snap: its daemon has another unit and socket, so a second daemon would be installed beside it.
refuse_snap() {
    [ ! -e /etc/systemd/system/snap.tailscale.tailscaled.service ] || fail \
        "tailscale is a snap here, and the cluster's units cannot wait for its daemon" \
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

# Refuse a machine that is already in another tailnet; tailrack never logs it out.
refuse_another_tailnet() {
    in_tailnet || return 0
    brought_by_the_cluster && return
    local name
    name=$(status_field DNSName)
    fail "this machine is in a tailnet already${name:+, as ${name%.}}, of the control server $(control_url); tailrack does not log it out" \
        "run 'tailscale logout' on $HOST_NAME; or, if that is the cluster's tailnet, set adopt: true for $HOST_NAME and nothing there is changed; then run up again"
}

# Succeed if the machine has the tag. In this output only a tag stands alone on its line.
tagged() { [ -z "$TAILNET_TAG" ] || tailscale status --json --peers=false | grep -E "^[[:space:]]*\"$TAILNET_TAG\",?\$" >/dev/null; }

# Check that an adopted machine has what other machines get; change nothing on it.
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
    # The tailnet's rules apply from tag to tag.
    tagged || fail "adopt: true, and this machine does not have the tag $TAILNET_TAG in its tailnet: the cluster's other machines \
would not reach it" "run 'tailscale up --advertise-tags=$TAILNET_TAG' on $HOST_NAME, with the other flags that it names; it \
then belongs to the tag and no longer to its owner (docs/tailnet.md, a machine with an owner)"
    name=$(granted_name)
    [ "$name" = "$HOST_NAME" ] ||
        fail "adopt: true, and the tailnet calls this machine $name; others would look for it as $HOST_NAME" \
            "run 'tailscale set --hostname=$HOST_NAME' on it, or call the host $name in the config"
}

# Print this machine's DNS servers, one per line; behind systemd-resolved's stub, its upstream servers.
dns_servers() {
    { cat /etc/resolv.conf /run/systemd/resolve/resolv.conf 2>/dev/null || :; } | awk '$1 == "nameserver" && !seen[$2]++ { print $2 }'
}
