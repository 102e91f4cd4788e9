#!/bin/bash
# uses: machine/keep_running tailnet/membership tailnet/own_firewall
# Bring the machine into the tailnet: tailscaled with its state on disk, a fixed host name, a tag.
#
# TAILNET_TAG          tag of this machine on the tailnet
# TAILNET_CONTROL_URL  control server, empty for Tailscale's own
# TAILNET_AUTH_KEY     secret, empty where the control server asks for none
# NODE_ADOPT           true where the machine is in the tailnet and stays as it is
# NODE_RELAY_PORT      UDP port at which it carries what finds no direct path between others, empty for none

# Seconds for the control server to answer a join.
JOIN_LIMIT=60
# Seconds for a name to resolve after a join.
NAMES_LIMIT=30
DAEMON_BEFORE=$STATE_DIR/tailnet-daemon
NAME_BEFORE=$STATE_DIR/tailnet-name-before

install_tailscale() {
    if [ -x /usr/sbin/tailscaled ] && tailscale_there; then return; fi
    ensure_packages curl ca-certificates
    local id codename source=https://pkgs.tailscale.com/stable said reason
    # shellcheck source=/dev/null
    id=$(. /etc/os-release && printf '%s' "$ID")
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
    if ! said=$(curl -fsS --retry 3 --max-time 60 -o /usr/share/keyrings/tailscale-archive-keyring.gpg \
        "$source/$id/$codename.noarmor.gpg" 2>&1); then
        reason=$(fetch_reason <<<"$said")
        fail "Tailscale's package source does not answer${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "install tailscale on $HOST_NAME by hand, then run up again")"
    fi
    # A file that an earlier try left keeps its mode, and apt reads it as an account of its own.
    chmod 0644 /usr/share/keyrings/tailscale-archive-keyring.gpg
    ensure_file /etc/apt/sources.list.d/tailscale.list 0644 root:root \
        "deb [signed-by=/usr/share/keyrings/tailscale-archive-keyring.gpg] $source/$id $codename main"
    ensure_packages tailscale
}

# True when the machine is on the tailnet as asked for, so that `up` has nothing to do.
joined_as_asked() {
    [ "$(status_field BackendState)" = Running ] &&
        [ "$(preference Hostname)" = "$HOST_NAME" ] &&
        [ "$(control_url)" = "$(wanted_control_url)" ] &&
        [ "$(tailscale debug prefs | jq -r '.AdvertiseTags // [] | join(",")')" = "$TAILNET_TAG" ] &&
        [ "$(preference CorpDNS)" = false ] &&
        [ "$(preference ShieldsUp)" != true ]
}

# It knows whether it has a login, and is not on its way from one state to another.
daemon_decided() { [[ $(status_field BackendState) =~ ^(Running|NeedsLogin|NeedsMachineAuth|Stopped)$ ]]; }

named() { [ -n "$(granted_name)" ]; }

# A name that is taken comes with a number behind it: nobody would find the machine, and somebody else in its place.
require_name() {
    local granted
    wait_until 10 named || note "no name yet"
    granted=$(granted_name)
    [ "$granted" != "$HOST_NAME" ] || return 0
    if [ "$1" = "just joined" ]; then
        # As it was, so that the next try asks for the name again.
        tailscale logout || note "tailscale could not log out"
        systemctl disable -q --now tailscaled
        rm -f /var/lib/tailscale/tailscaled.state "$MEMBERSHIP_FILE"
    fi
    fail "the name $HOST_NAME is taken in the tailnet; this machine was called ${granted:-nothing} there" \
        "remove the machine called $HOST_NAME (and ${granted:-it}) from the tailnet, in the control server's list of machines, or give this host another name; then run up again"
}

# Where tailscaled started at boot before, it does so again when the machine has left.
remember_daemon() {
    [ -e "$DAEMON_BEFORE" ] || ensure_file "$DAEMON_BEFORE" 0644 root:root "$(systemctl is-enabled tailscaled || :)"
}

# tailscaled speaks to the control server and to relays over HTTPS, and no shell reads /etc/environment for it.
lead_through_proxy() {
    local file=/etc/systemd/system/tailscaled.service.d/tailrack.conf
    CHANGED=
    if grep -qsiE '^(export )?(https?|all)_proxy=' /etc/environment; then
        ensure_file "$file" 0644 root:root $'# Written by tailrack: the proxy that is named there.\n[Service]\nEnvironmentFile=-/etc/environment'
    elif [ -e "$file" ]; then
        rm "$file"
        CHANGED=yes
    fi
    if [ -n "$CHANGED" ]; then
        systemctl daemon-reload
        systemctl try-restart tailscaled
    fi
}

# Asked of DNS alone: /etc/hosts would answer without it.
resolves() { timeout 10 getent -s dns hosts "$1" >/dev/null 2>&1; }

# A name that a DNS server knows, among those that this machine needs: its package sources and the control server.
name_that_resolves() {
    local name
    for name in $({ grep -rhoE '^(deb |URIs:).*https?://[^/ :]+' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || :; } |
        sed 's,.*://,,' | sort -u | sed -n 1,3p) "$(sed 's,.*://,,; s,[/:].*,,' <<<"$TAILNET_CONTROL_URL")"; do
        if [ -n "$name" ] && resolves "$name"; then
            printf '%s' "$name"
            return
        fi
    done
}

# A join must not take DNS away. The name is kept until it was seen to resolve, so that the next run looks again.
require_names() {
    local name
    name=$(cat "$NAME_BEFORE" 2>/dev/null) || return 0
    [ -z "$name" ] || wait_until "$NAMES_LIMIT" resolves "$name" ||
        fail "DNS is dead since this machine joined the tailnet: $name resolved before, and does not now" \
            "its DNS servers are $(dns_servers | tr '\n' ' '); see 'resolvectl status' and 'tailscale status' on $HOST_NAME, give it others (/etc/systemd/resolved.conf), then run up again"
    rm -f "$NAME_BEFORE"
}

join_tailnet() {
    remember_daemon
    lead_through_proxy
    enable_units --now tailscaled.service
    wait_until 30 systemctl -q is-active tailscaled || fail "tailscaled does not start" "see 'journalctl -u tailscaled' on $HOST_NAME"
    # After a restart the daemon comes back by itself; do not log in again while it does.
    wait_until 15 daemon_decided || note "tailscaled is still starting"
    refuse_another_tailnet
    if joined_as_asked; then
        require_name "is a member"
        require_names
        return
    fi
    local key_file options=(--reset --accept-dns=false "--hostname=$HOST_NAME" "--timeout=${JOIN_LIMIT}s")
    [ -z "$TAILNET_CONTROL_URL" ] || options+=("--login-server=$TAILNET_CONTROL_URL")
    [ -z "$TAILNET_TAG" ] || options+=("--advertise-tags=$TAILNET_TAG")
    # The key is read from a file in memory: an argument would be seen in ps.
    key_file=$(mktemp /run/tailrack-key.XXXXXX)
    chmod 0600 "$key_file"
    # Where no key is asked for, a placeholder keeps tailscale from waiting for a person with a browser.
    if [ -n "$TAILNET_AUTH_KEY" ]; then printf '%s' "$TAILNET_AUTH_KEY"; else printf 'tskey-none'; fi >"$key_file"
    options+=("--auth-key=file:$key_file")
    # A changed control server wants a fresh login.
    if [ "$(status_field BackendState)" = Running ]; then options+=(--force-reauth); fi
    # Before it is true, or a join that is killed would be taken for another's. What was true until now stays beside it.
    local status=0 answer before membership
    membership=$(membership "$(wanted_control_url)")
    grep -qsxF "$membership" "$MEMBERSHIP_FILE" || printf '%s\n' "$membership" >>"$MEMBERSHIP_FILE"
    before=$(tailscale ip -4 2>/dev/null || :)
    [ -e "$NAME_BEFORE" ] || ensure_file "$NAME_BEFORE" 0644 root:root "$(name_that_resolves)"
    answer=$(timeout -k 5 $((JOIN_LIMIT + 10)) tailscale up "${options[@]}" 2>&1) || status=$?
    rm -f "$key_file"
    note "tailscale up: ${answer:-joined}"
    [ "$status" -eq 0 ] || fail "the tailnet did not take this machine: ${answer:-no answer in ${JOIN_LIMIT}s}" \
        "make a new auth key for the tag $TAILNET_TAG and set it with 'pulumi config set --secret --path tailrack:tailnet.auth_key'; where the stack makes its keys (tailnet.kind tailscale), run 'pulumi up --refresh'"
    require_name "just joined"
    ensure_file "$MEMBERSHIP_FILE" 0644 root:root "$membership"
    require_names
    [ "$(tailscale ip -4)" != "$before" ] || return 0
    # What is bound to an address of an earlier membership starts anew, in its order.
    reload_units tailrack-tailnet.service
    systemctl restart tailrack-tailnet.service
}

# A member of the cluster's own making is a relay as the config says, and none where it says so no more.
offer_relay() {
    [ "$(preference RelayServerPort)" != "$NODE_RELAY_PORT" ] || return 0
    local answer
    answer=$(tailscale set "--relay-server-port=$NODE_RELAY_PORT" 2>&1) ||
        fail "tailscale on $HOST_NAME does not take '$NODE_RELAY_PORT' as its relay's UDP port: $answer" \
            "see 'journalctl -u tailscaled' on $HOST_NAME"
}

# What is adopted stays as it is: its owner says that it is a relay.
require_relay() {
    [ -z "$NODE_RELAY_PORT" ] || [ "$(preference RelayServerPort)" = "$NODE_RELAY_PORT" ] ||
        fail "adopt: true, and this machine is no relay at UDP port $NODE_RELAY_PORT, as tailnet.relay has it" \
            "run 'tailscale set --relay-server-port=$NODE_RELAY_PORT' on $HOST_NAME, or name another node"
}

tailnet_join() {
    # A step that was killed may have left its key.
    rm -f /run/tailrack-key.*
    if [ "$NODE_ADOPT" = true ]; then
        require_adoptable
        require_relay
    else
        install_tailscale
        let_leaving_end
        join_tailnet
        offer_relay
    fi
    keep_running tailscaled.service
    reload_units tailrack-tailnet.service
    enable_units --now tailrack-tailnet.service
    result tailnet_ip "$(json_string "$(tailscale ip -4)")"
    result firewall "$(json_string "$(own_firewall)")"
    result tailscale_version "$(json_string "$(tailscale version | sed -n 1p)")"
}
