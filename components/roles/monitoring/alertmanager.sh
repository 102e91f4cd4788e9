#!/bin/bash
# uses: monitoring/exporter
# Run Alertmanager on the head node, if the config has receivers. It listens on 127.0.0.1 and requires a password that
# only Prometheus has, because any client could silence alerts or send its own.
#
# MONITORING_ALERTMANAGER        its configuration; empty without receivers
# MONITORING_ALERTMANAGER_PORT   its port on 127.0.0.1
# MONITORING_ALERTMANAGER_UNIT   text of its unit
# MONITORING_RECEIVERS           secret: `file text`, one a line
# MONITORING_PORT, HEAD_ADDRESS  Prometheus' port and address for people

# Only root can access it.
ALERTMANAGER_DIR=/etc/tailrack/alertmanager

# Create Prometheus' password for Alertmanager and its hash. Prometheus needs the password when it starts.
ensure_alertmanager_password() {
    local file=$ALERTMANAGER_DIR/password web=$ALERTMANAGER_DIR/web.yml fresh hash
    install -d -m 0700 -o root -g root "$ALERTMANAGER_DIR"
    if ! [[ $(cat "$file" 2>/dev/null) =~ ^[0-9a-f]{64}$ ]]; then
        fresh=$(random_digits 64)
        ensure_file "$file" 0600 root:root "$fresh"
    fi
    hash=$(sed -n 's/^  prometheus: "\(.*\)"$/\1/p' "$web" 2>/dev/null) || :
    if [ -z "$hash" ] || [ "$(crypted "$hash" "$file")" != "$hash" ]; then
        fresh=$(random_digits 22)
        hash=$(crypted "\$2b\$05\$$fresh" "$file")
    fi
    ensure_file "$web" 0600 root:root "basic_auth_users:
  prometheus: \"$hash\""
    ensure_file "$ALERTMANAGER_DIR/login" 0600 root:root "user = \"prometheus:$(cat "$file")\""
}

# Print $1 random hexadecimal digits, at most 64.
random_digits() { head -c 32 /dev/urandom | sha256sum | cut -c "1-$1"; }

# Print crypt(3) of the password in file $2. $1: the setting, or an earlier hash.
crypted() {
    { printf '%s\n' "$1" && cat "$2"; } | perl -e 'chomp(my ($setting, $word) = <STDIN>); print crypt($word, $setting)'
}

start_alertmanager() {
    local unit=tailrack-alertmanager.service name text output files lines='' http_login=$ALERTMANAGER_DIR/login
    files=("/etc/systemd/system/$unit" "$ALERTMANAGER_DIR"/{environment,alertmanager.yml,web.yml})
    silence_daemon prometheus-alertmanager "$unit"
    while read -r name text; do
        [ -n "$name" ] || continue
        ensure_file "$ALERTMANAGER_DIR/$name" 0600 root:root "$text"
        lines+="${lines:+$'\n'}LoadCredential=$name:$ALERTMANAGER_DIR/$name"
        files+=("$ALERTMANAGER_DIR/$name")
    done <<<"$MONITORING_RECEIVERS"
    remove_old_receivers "${files[@]}"
    ensure_file "${files[0]}" 0644 root:root "${MONITORING_ALERTMANAGER_UNIT//@CREDENTIALS@/"$lines"}"
    ensure_file "${files[1]}" 0600 root:root "PORT=$MONITORING_ALERTMANAGER_PORT
PROMETHEUS=$HEAD_ADDRESS:$MONITORING_PORT"
    ensure_file "${files[2]}" 0600 root:root "$MONITORING_ALERTMANAGER"
    output=$(amtool check-config "${files[2]}" 2>&1) ||
        fail "this distribution's Alertmanager does not accept tailrack:monitoring.receivers: $(amtool_reason <<<"$output")" \
            "a webhook needs Alertmanager 0.26 or newer (Debian 13) on the head node; slack and mail also work with Debian 12's"
    run_daemon "$unit" 127.0.0.1 "$MONITORING_ALERTMANAGER_PORT" /-/ready monitoring.alertmanager_port "${files[@]}"
}

# Print amtool's error message on one line.
amtool_reason() { { grep -vE '^ *$|^Checking|^amtool:' || :; } | tr -s ' \n' ' ' | tr -cd '[:print:]' | cut -c 1-300; }

# Remove the secrets of former receivers. $@: files to keep.
remove_old_receivers() {
    local file
    for file in "$ALERTMANAGER_DIR"/receiver-*; do
        [[ " $* " == *" $file "* ]] || rm -f "$file"
    done
}
