#!/bin/bash
# uses: monitoring/place
# Node exporter in a unit of its own, at the tailnet's address alone. One that the machine had before is left as it is.
#
# MONITORING_EXPORTER_PORT   where it answers
# MONITORING_EXPORTER_UNIT   text of its unit
# MONITORING_FIGURES, MONITORING_FIGURES_UNIT, MONITORING_FIGURES_TIMER   texts of what it does not know by itself

# Seconds for a daemon to answer; Prometheus first reads what it wrote last.
ANSWER_LIMIT=120

# The daemons' packages start them at boot, with their own settings: those that came with the cluster do not. Before our unit
# is there alone, so that a person's later word holds.
silence_daemon() {
    [ ! -e "/etc/systemd/system/$2" ] || return 0
    if grep -qsx "$1" "$STATE_DIR/packages"; then systemctl disable -q --now "$1.service"; fi
}

# Stop where somebody else listens at a port of an address: unit, address, port, and the key of the config that says the port.
refuse_taken_port() {
    local holder own
    own=$(systemctl show -P MainPID "$1")
    holder=$(ss -Hltnp "sport = :$3" | awk -v address="$2" -v own=",pid=${own:-0}," '
        index($0, own) { next }
        { at = $4; sub(/:[0-9]+$/, "", at); sub(/%.*/, "", at) }
        at == address || at == "*" || at == "0.0.0.0" || at == "[::]" {
            name = $6; sub(/^[^"]*"/, "", name); sub(/".*/, "", name); print name == "" ? "another program" : name; exit
        }')
    [ -z "$holder" ] || fail "port $3 is in use on $HOST_NAME ($holder), so ${1%.service} cannot answer there" \
        "end that program ('ss -ltnp sport = :$3' on $HOST_NAME says which), or write another port in tailrack:monitoring.$4; then run up again"
}

# Whether a daemon was started, or has read its rules, with files as they are now. What is kept in memory is no longer so after
# a boot, and one restart more does no harm: a run that was cut off after it wrote a file is not taken for one that was whole.
# a name, files
used_as_they_are() {
    [ "$(cat "$PRIVATE_DIR/used-$1" 2>/dev/null)" = "$(cat "${@:2}" | sha256sum)" ]
}
used() { cat "${@:2}" | sha256sum >"$PRIVATE_DIR/used-$1"; }

# Whether a daemon answers: address, port, path. Where the daemon asks for an account, a caller's
# http_login is a file of curl's that has it.
answers_http() { curl -fs --noproxy '*' -m 10 -o /dev/null ${http_login:+-K "$http_login"} "http://$1:$2$3"; }

# What a daemon itself said last; systemd's words about it come after.
last_words() {
    journalctl "_SYSTEMD_UNIT=$1" -n 1 -o cat --no-pager 2>/dev/null | tr -cd '[:print:]' | cut -c 1-300
}

# Have a daemon run with its files as they are now, and wait until it answers: unit, address, port, path, the key of the config
# that says the port, files.
run_daemon() {
    local unit=$1 address=$2 port=$3 path=$4 key=$5
    shift 5
    reload_units "$unit"
    enable_units "$unit"
    if ! systemctl -q is-active "$unit" || ! used_as_they_are "$unit" "$@" || ! answers_http "$address" "$port" "$path"; then
        refuse_taken_port "$unit" "$address" "$port" "$key"
        systemctl reset-failed "$unit" 2>/dev/null || :
        systemctl restart "$unit"
        used "$unit" "$@"
    fi
    wait_until "$ANSWER_LIMIT" answers_http "$address" "$port" "$path" ||
        fail "${unit%.service} does not answer at $address:$port: $(last_words "$unit")" \
            "see 'journalctl -u $unit' on $HOST_NAME, then run up again"
}

# Tailnet address of this machine, and what is collected here besides, by name
start_exporter() {
    local address=$1 unit=/etc/systemd/system/tailrack-node-exporter.service
    shift
    silence_daemon prometheus-node-exporter tailrack-node-exporter.service
    install -d -m 0755 "$METRICS_DIR"
    ensure_file /etc/tailrack/node-exporter 0644 root:root "ADDRESS=$address
PORT=$MONITORING_EXPORTER_PORT"
    ensure_file "$unit" 0644 root:root "$MONITORING_EXPORTER_UNIT"
    run_daemon tailrack-node-exporter.service "$address" "$MONITORING_EXPORTER_PORT" / exporter_port \
        "$unit" /etc/tailrack/node-exporter
    CHANGED=
    ensure_file /usr/local/lib/tailrack/figures 0755 root:root "$MONITORING_FIGURES"
    ensure_file /etc/tailrack/figures 0644 root:root "COLLECTORS=$*"
    ensure_file /etc/systemd/system/tailrack-figures.service 0644 root:root "$MONITORING_FIGURES_UNIT"
    ensure_file /etc/systemd/system/tailrack-figures.timer 0644 root:root "$MONITORING_FIGURES_TIMER"
    reload_units tailrack-figures.service tailrack-figures.timer
    enable_units --now tailrack-figures.timer
    # Not only in a minute; nobody waits for it.
    [ -z "$CHANGED" ] || systemctl start --no-block tailrack-figures.service
}
