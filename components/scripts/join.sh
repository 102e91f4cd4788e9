#!/bin/bash
# Join the tailnet and hold the cluster's munge key: what a machine needs before any other node can trust it.
#
# TAILNET_TAG    tag of this machine on the tailnet, may be empty
# CONTROL_URL    control server, empty for Tailscale's own
# HEAD_ADDRESS   tailnet address of the head node, empty on the head itself
# AUTH_KEY       secret, may be empty where the control server asks for none
# MUNGE_KEY      secret, text
: "${TAILNET_TAG=}" "${CONTROL_URL=}" "${HEAD_ADDRESS=}" "${AUTH_KEY=}" "${MUNGE_KEY:?}"

# Seconds for the control server to answer a join.
JOIN_LIMIT=60

install_tailscale() {
    if [ -x /usr/sbin/tailscaled ] && [ -x /usr/bin/tailscale ]; then return; fi
    ensure_packages curl ca-certificates
    local id codename source=https://pkgs.tailscale.com/stable
    # shellcheck source=/dev/null
    id=$(. /etc/os-release && printf '%s' "$ID")
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
    curl -fsS --retry 3 --max-time 60 -o /usr/share/keyrings/tailscale-archive-keyring.gpg "$source/$id/$codename.noarmor.gpg" ||
        fail "Tailscale's package source does not answer" "install tailscale on $HOST_NAME by hand, then run up again"
    ensure_file /etc/apt/sources.list.d/tailscale.list 0644 root:root \
        "deb [signed-by=/usr/share/keyrings/tailscale-archive-keyring.gpg] $source/$id $codename main"
    ensure_packages tailscale
}

status_field() { tailscale status --json 2>/dev/null | jq -r "$1 // empty"; }

# True when the machine is on the tailnet as asked for, so that `up` has nothing to do.
joined_as_asked() {
    [ "$(status_field .BackendState)" = Running ] || return 1
    local prefs
    prefs=$(tailscale debug prefs)
    [ "$(jq -r .Hostname <<<"$prefs")" = "$HOST_NAME" ] &&
        [ "$(jq -r .ControlURL <<<"$prefs")" = "${CONTROL_URL:-https://controlplane.tailscale.com}" ] &&
        [ "$(jq -r '.AdvertiseTags // [] | join(",")' <<<"$prefs")" = "$TAILNET_TAG" ] &&
        [ "$(jq -r .CorpDNS <<<"$prefs")" = false ]
}

# It knows whether it has a login, and is not on its way from one state to another.
daemon_decided() { [[ $(status_field .BackendState) =~ ^(Running|NeedsLogin|NeedsMachineAuth|Stopped)$ ]]; }

join_tailnet() {
    systemctl enable -q --now tailscaled
    wait_until 30 systemctl -q is-active tailscaled || fail "tailscaled does not start" "see 'journalctl -u tailscaled' on $HOST_NAME"
    # After a restart the daemon comes back by itself; do not log in again while it does.
    wait_until 15 daemon_decided || note "tailscaled is still starting"
    joined_as_asked && return
    local key_file options=(--reset --accept-dns=false "--hostname=$HOST_NAME" "--timeout=${JOIN_LIMIT}s")
    [ -z "$CONTROL_URL" ] || options+=("--login-server=$CONTROL_URL")
    [ -z "$TAILNET_TAG" ] || options+=("--advertise-tags=$TAILNET_TAG")
    # The key is read from a file in memory: an argument would be seen in ps.
    key_file=$(mktemp /run/tailrack-key.XXXXXX)
    chmod 0600 "$key_file"
    # Where no key is asked for, a placeholder keeps tailscale from waiting for a person with a browser.
    printf '%s' "${AUTH_KEY:-tskey-none}" >"$key_file"
    options+=("--auth-key=file:$key_file")
    # A changed control server wants a fresh login.
    if [ "$(status_field .BackendState)" = Running ]; then options+=(--force-reauth); fi
    local status=0 answer
    answer=$(timeout -k 5 $((JOIN_LIMIT + 10)) tailscale up "${options[@]}" 2>&1) || status=$?
    rm -f "$key_file"
    note "tailscale up: ${answer:-joined}"
    [ "$status" -eq 0 ] || fail "the tailnet did not take this machine: ${answer:-no answer in ${JOIN_LIMIT}s}" \
        "make a new auth key for the tag ${TAILNET_TAG:-(none)} and set it with 'pulumi config set --secret --path tailrack:tailnet.auth_key'"
}

install_munge_key() {
    CHANGED=
    ensure_file /etc/munge/munge.key 0400 munge:munge "$MUNGE_KEY"
    chown munge:munge /etc/munge
    chmod 0700 /etc/munge
    systemctl enable -q munge
    if [ -n "$CHANGED" ] || ! systemctl -q is-active munge; then systemctl restart munge; fi
    munge -n | unmunge >/dev/null || fail "munge cannot read its own credential" "see 'journalctl -u munge' on $HOST_NAME"
}

# direct, or relay when the traffic goes through one of the tailnet's relays.
path_to_head() {
    [ -n "$HEAD_ADDRESS" ] || { echo self; return; }
    local answer
    answer=$(timeout 30 tailscale ping --c 4 --timeout 3s --until-direct "$HEAD_ADDRESS" 2>&1 || :)
    note "tailscale ping: $answer"
    if grep -q 'via [0-9\[]' <<<"$answer"; then
        echo direct
    elif grep -q 'via DERP' <<<"$answer"; then
        echo relay
    else
        return 1
    fi
}

sshd_port() { sshd -T 2>/dev/null | awk '$1 == "port" {print $2; exit}'; }

up() {
    ensure_packages munge jq openssh-server
    install_tailscale
    join_tailnet
    ensure_file /etc/systemd/system/tailrack-tailnet.service 0644 root:root "[Unit]
Description=This machine has its tailnet address
After=tailscaled.service
Wants=tailscaled.service
PartOf=tailscaled.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/tailscale wait --timeout 300s

[Install]
WantedBy=multi-user.target tailscaled.service"
    systemctl daemon-reload
    systemctl enable -q --now tailrack-tailnet.service
    install_munge_key
    local address path
    address=$(tailscale ip -4)
    path=$(path_to_head) || fail "the head node does not answer on the tailnet at $HEAD_ADDRESS" \
        "see 'tailscale netcheck' and 'tailscale ping $HEAD_ADDRESS' on $HOST_NAME; outgoing UDP 41641 or TCP 443 must be open"
    local authority='' leave_key=''
    if [ -z "$HEAD_ADDRESS" ]; then
        ensure_authority
        authority=$(public_key "$AUTHORITY_KEY")
        # shellcheck disable=SC2153  # from lib/authority
        leave_key=$(public_key "$LEAVE_KEY")
    fi
    json_object \
        tailnet_ip "$(json_string "$address")" \
        path "$(json_string "$path")" \
        dns_suffix "$(json_string "$(status_field .MagicDNSSuffix)")" \
        tailscale_version "$(json_string "$(tailscale version | head -n 1)")" \
        sshd_port "$(sshd_port)" \
        authority "$(json_string "$authority")" \
        leave_key "$(json_string "$leave_key")" \
        host_key "$(json_string "$(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)")" >&3
}
