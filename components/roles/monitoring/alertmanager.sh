#!/bin/bash
# uses: monitoring/exporter
# Alertmanager on the head node, where the config has receivers. It answers on this machine alone, and there to Prometheus alone:
# whoever could ask it for more could silence alerts, or send some of his own.
#
# MONITORING_ALERTMANAGER        its configuration, empty where nobody is to be told
# MONITORING_ALERTMANAGER_PORT   where it answers, of 127.0.0.1
# MONITORING_ALERTMANAGER_UNIT   text of its unit
# MONITORING_RECEIVERS           secret: `file text`, one a line
# MONITORING_PORT, HEAD_ADDRESS  where Prometheus answers people

# Root's alone; its parent is root's too.
ALERTMANAGER_DIR=/etc/tailrack/alertmanager

# Prometheus' password, made here, and what it is checked by. Before Prometheus, which starts with it.
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

# So many random hexadecimal digits, at most 64.
random_digits() { head -c 32 /dev/urandom | sha256sum | cut -c "1-$1"; }

# What crypt(3) makes of the word in a file: setting, or what it made before; file.
crypted() {
    { printf '%s\n' "$1" && cat "$2"; } | perl -e 'chomp(my ($setting, $word) = <STDIN>); print crypt($word, $setting)'
}

start_alertmanager() {
    local unit=tailrack-alertmanager.service name text said files lines='' http_login=$ALERTMANAGER_DIR/login
    files=("/etc/systemd/system/$unit" "$ALERTMANAGER_DIR"/{environment,alertmanager.yml,web.yml})
    silence_daemon prometheus-alertmanager "$unit"
    while read -r name text; do
        [ -n "$name" ] || continue
        ensure_file "$ALERTMANAGER_DIR/$name" 0600 root:root "$text"
        lines+="${lines:+$'\n'}LoadCredential=$name:$ALERTMANAGER_DIR/$name"
        files+=("$ALERTMANAGER_DIR/$name")
    done <<<"$MONITORING_RECEIVERS"
    forget_receivers "${files[@]}"
    ensure_file "${files[0]}" 0644 root:root "${MONITORING_ALERTMANAGER_UNIT//@CREDENTIALS@/"$lines"}"
    ensure_file "${files[1]}" 0600 root:root "PORT=$MONITORING_ALERTMANAGER_PORT
PROMETHEUS=$HEAD_ADDRESS:$MONITORING_PORT"
    ensure_file "${files[2]}" 0600 root:root "$MONITORING_ALERTMANAGER"
    said=$(amtool check-config "${files[2]}" 2>&1) ||
        fail "the Alertmanager of this machine's distribution does not take tailrack:monitoring.receivers: $(amtool_reason <<<"$said")" \
            "a webhook needs Alertmanager 0.26 or newer on the head node, as Debian 13 has it; slack and mail do with Debian 12's"
    run_daemon "$unit" 127.0.0.1 "$MONITORING_ALERTMANAGER_PORT" /-/ready monitoring.alertmanager_port "${files[@]}"
}

# What amtool complains of, on one line.
amtool_reason() { { grep -vE '^ *$|^Checking|^amtool:' || :; } | tr -s ' \n' ' ' | tr -cd '[:print:]' | cut -c 1-300; }

# Secrets of receivers that are gone: files that stay.
forget_receivers() {
    local file
    for file in "$ALERTMANAGER_DIR"/receiver-*; do
        [[ " $* " == *" $file "* ]] || rm -f "$file"
    done
}
