#!/bin/bash
# uses: machine/keep_running tailnet/membership tailnet/own_firewall
# Join the tailnet: tailscaled with its state on disk, a fixed host name and a tag.
#
# TAILNET_TAG          tag of this machine on the tailnet
# TAILNET_CONTROL_URL  control server, empty for Tailscale's own
# TAILNET_AUTH_KEY     secret, empty if the control server needs none
# NODE_ADOPT           true if the machine is already in the tailnet and must not be changed
# NODE_RELAY_PORT      UDP port on which it relays connections between other nodes, empty for none

# Seconds for the control server to answer a join.
JOIN_LIMIT=60
# Seconds for a name to resolve after a join.
NAMES_LIMIT=30
DAEMON_BEFORE=$STATE_DIR/tailnet-daemon
NAME_BEFORE=$STATE_DIR/tailnet-name-before

install_tailscale() {
    if [ -x /usr/sbin/tailscaled ] && tailscale_there; then return; fi
    ensure_packages curl ca-certificates
    local id codename source=https://pkgs.tailscale.com/stable message reason
    # shellcheck source=/dev/null
    id=$(. /etc/os-release && printf '%s' "$ID")
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
    if ! message=$(curl -fsS --retry 3 --max-time 60 -o /usr/share/keyrings/tailscale-archive-keyring.gpg \
        "$source/$id/$codename.noarmor.gpg" 2>&1); then
        reason=$(fetch_reason <<<"$message")
        fail "Tailscale's package source does not answer${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "install tailscale on $HOST_NAME by hand, then run up again")"
    fi
    # A file from an earlier attempt keeps its mode, and apt reads it as another account.
    chmod 0644 /usr/share/keyrings/tailscale-archive-keyring.gpg
    ensure_file /etc/apt/sources.list.d/tailscale.list 0644 root:root \
        "deb [signed-by=/usr/share/keyrings/tailscale-archive-keyring.gpg] $source/$id $codename main"
    ensure_packages tailscale
}

# Succeed if the machine is in the tailnet with the settings of the config.
joined_as_asked() {
    [ "$(status_field BackendState)" = Running ] &&
        [ "$(preference Hostname)" = "$HOST_NAME" ] &&
        [ "$(control_url)" = "$(wanted_control_url)" ] &&
        [ "$(tailscale debug prefs | jq -r '.AdvertiseTags // [] | join(",")')" = "$TAILNET_TAG" ] &&
        [ "$(preference CorpDNS)" = false ] &&
        [ "$(preference ShieldsUp)" != true ]
}

# Succeed if tailscaled has settled in a state.
daemon_decided() { [[ $(status_field BackendState) =~ ^(Running|NeedsLogin|NeedsMachineAuth|Stopped)$ ]]; }

named() { [ -n "$(granted_name)" ]; }

# Fail if the control server gave another name: for a taken name it appends a number, and others would reach the wrong machine.
require_name() {
    local granted
    wait_until 10 named || note "no name yet"
    granted=$(granted_name)
    [ "$granted" != "$HOST_NAME" ] || return 0
    if [ "$1" = "just joined" ]; then
        # Undo the join, so that the next run asks for the name again.
        tailscale logout || note "tailscale could not log out"
        systemctl disable -q --now tailscaled
        rm -f /var/lib/tailscale/tailscaled.state "$MEMBERSHIP_FILE"
    fi
    fail "the name $HOST_NAME is taken in the tailnet; this machine got the name ${granted:-(none)} there" \
        "remove the machine called $HOST_NAME (and ${granted:-it}) from the tailnet, in the control server's list of machines, or give this host another name; then run up again"
}

# Remember whether tailscaled started at boot before, for the day when the machine leaves.
remember_daemon() {
    [ -e "$DAEMON_BEFORE" ] || ensure_file "$DAEMON_BEFORE" 0644 root:root "$(systemctl is-enabled tailscaled || :)"
}

# tailscaled contacts the control server and relays over HTTPS, and nothing else gives it the proxy in /etc/environment.
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

# Query DNS only: /etc/hosts would answer without it.
resolves() { timeout 10 getent -s dns hosts "$1" >/dev/null 2>&1; }

# Print a name that resolves now, from this machine's package sources and the control server.
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

# Fail if DNS stopped working after the join. The name is kept until it resolves, so the next run checks again.
require_names() {
    local name
    name=$(cat "$NAME_BEFORE" 2>/dev/null) || return 0
    [ -z "$name" ] || wait_until "$NAMES_LIMIT" resolves "$name" ||
        fail "DNS stopped working when this machine joined the tailnet: $name resolved before and does not now" \
            "its DNS servers are $(dns_servers | tr '\n' ' '); see 'resolvectl status' and 'tailscale status' on $HOST_NAME, give it others (/etc/systemd/resolved.conf), then run up again"
    rm -f "$NAME_BEFORE"
}

join_tailnet() {
    remember_daemon
    lead_through_proxy
    enable_units --now tailscaled.service
    wait_until 30 systemctl -q is-active tailscaled || fail "tailscaled does not start" "see 'journalctl -u tailscaled' on $HOST_NAME"
    # After a restart the daemon reconnects; do not log in again meanwhile.
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
    # Pass the key in a file in memory: ps shows arguments.
    key_file=$(mktemp /run/tailrack-key.XXXXXX)
    chmod 0600 "$key_file"
    # Without a key, a placeholder keeps tailscale from waiting for a login in a browser.
    if [ -n "$TAILNET_AUTH_KEY" ]; then printf '%s' "$TAILNET_AUTH_KEY"; else printf 'tskey-none'; fi >"$key_file"
    options+=("--auth-key=file:$key_file")
    # Another control server needs a new login.
    if [ "$(status_field BackendState)" = Running ]; then options+=(--force-reauth); fi
    # Record the membership before the join, or a killed join would look like someone else's. The previous line stays beside it.
    local status=0 answer before membership
    membership=$(membership "$(wanted_control_url)")
    grep -qsxF "$membership" "$MEMBERSHIP_FILE" || printf '%s\n' "$membership" >>"$MEMBERSHIP_FILE"
    before=$(tailscale ip -4 2>/dev/null || :)
    [ -e "$NAME_BEFORE" ] || ensure_file "$NAME_BEFORE" 0644 root:root "$(name_that_resolves)"
    answer=$(timeout -k 5 $((JOIN_LIMIT + 10)) tailscale up "${options[@]}" 2>&1) || status=$?
    rm -f "$key_file"
    note "tailscale up: ${answer:-joined}"
    [ "$status" -eq 0 ] || fail "the tailnet did not accept this machine: ${answer:-no answer in ${JOIN_LIMIT}s}" \
        "make a new auth key for the tag $TAILNET_TAG and set it with 'pulumi config set --secret --path tailrack:tailnet.auth_key'; where the stack makes its keys (tailnet.kind tailscale), run 'pulumi up --refresh'"
    require_name "just joined"
    ensure_file "$MEMBERSHIP_FILE" 0644 root:root "$membership"
    require_names
    [ "$(tailscale ip -4)" != "$before" ] || return 0
    # Restart, in order, the units that are bound to an address of an earlier membership.
    reload_units tailrack-tailnet.service
    systemctl restart tailrack-tailnet.service
}

# Make a machine that the cluster joined a relay or not, as the config says.
offer_relay() {
    [ "$(preference RelayServerPort)" != "$NODE_RELAY_PORT" ] || return 0
    local answer
    answer=$(tailscale set "--relay-server-port=$NODE_RELAY_PORT" 2>&1) ||
        fail "tailscale on $HOST_NAME does not take '$NODE_RELAY_PORT' as its relay's UDP port: $answer" \
            "see 'journalctl -u tailscaled' on $HOST_NAME"
}

# An adopted machine is not changed: its owner makes it a relay.
require_relay() {
    [ -z "$NODE_RELAY_PORT" ] || [ "$(preference RelayServerPort)" = "$NODE_RELAY_PORT" ] ||
        fail "adopt: true, and this machine is no relay at UDP port $NODE_RELAY_PORT, as tailnet.relay has it" \
            "run 'tailscale set --relay-server-port=$NODE_RELAY_PORT' on $HOST_NAME, or name another node"
}

tailnet_join() {
    # A killed step may have left its key.
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
