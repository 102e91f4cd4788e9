#!/bin/bash
# uses: firewall/hold
# Run daemons that answer HTTP: check that their port is free, restart them if their files changed, and wait for an
# answer.

# Seconds for a daemon to answer: some first replay their log.
ANSWER_LIMIT=120

# Fail if another program listens at a port of an address: unit, address, port, config key of the port.
refuse_taken_port() {
    local holder main_pid
    main_pid=$(systemctl show -P MainPID "$1")
    holder=$(ss -Hltnp "sport = :$3" | awk -v address="$2" -v main_pid=",pid=${main_pid:-0}," '
        index($0, main_pid) { next }
        { local_address = $4; sub(/:[0-9]+$/, "", local_address); sub(/%.*/, "", local_address) }
        local_address == address || local_address == "*" || local_address == "0.0.0.0" || local_address == "[::]" {
            name = $6; sub(/^[^"]*"/, "", name); sub(/".*/, "", name); print name == "" ? "another program" : name; exit
        }')
    [ -z "$holder" ] || fail "port $3 is in use on $HOST_NAME ($holder), so ${1%.service} cannot answer there" \
        "end that program ('ss -ltnp sport = :$3' on $HOST_NAME shows it), or set another port in tailrack:$4; then run up again"
}

# Succeed if a daemon has loaded these versions of its files: name, files. The record is in memory, so it is gone after
# a boot, and a run that was cut off between writing a file and the restart leaves none.
used_as_they_are() {
    [ "$(cat "$PRIVATE_DIR/used-$1" 2>/dev/null)" = "$(cat "${@:2}" | sha256sum)" ]
}
used() { cat "${@:2}" | sha256sum >"$PRIVATE_DIR/used-$1"; }

# Succeed if a daemon answers: address, port, path. If it requires a login, the caller sets http_login to a curl config
# file.
answers_http() { curl -fs --noproxy '*' -m 10 -o /dev/null ${http_login:+-K "$http_login"} "http://$1:$2$3"; }

# Print a daemon's last error, or its last line, without systemd's lines. Also report a full disk: Prometheus crashes
# there with a stack trace that does not mention the disk.
last_words() {
    local room folder=/var/lib/private/${1%.service}
    # The state folder of a dynamic account; otherwise that of a normal account.
    [ -d "$folder" ] || folder=/var/lib/${1%.service}
    room=$(df -B1M --output=avail "$folder" 2>/dev/null | tail -n 1) || :
    if [ -n "$room" ] && [ "$room" -lt 16 ]; then printf '%s is on a full disk; ' "$folder"; fi
    journalctl "_SYSTEMD_UNIT=$1" -n 300 -o cat --no-pager 2>/dev/null |
        awk '/level=(error|ERROR)|^panic:|^fatal error:/ { wrong = $0 } { last = $0 } END { print wrong == "" ? last : wrong }' |
        tr -cd '[:print:]' | cut -c 1-400
}

# Run a daemon with the current versions of its files, and wait until it answers: unit, address, port, path, config key
# of the port, files. The caller can set answer_limit to another limit in seconds.
run_daemon() {
    local unit=$1 address=$2 port=$3 path=$4 key=$5
    shift 5
    reload_units "$unit"
    enable_units "$unit"
    if ! systemctl -q is-active "$unit" || ! used_as_they_are "$unit" "$@" || ! answers_http "$address" "$port" "$path"; then
        refuse_taken_port "$unit" "$address" "$port" "$key"
        hold_ports
        systemctl reset-failed "$unit" 2>/dev/null || :
        systemctl restart "$unit"
        used "$unit" "$@"
    fi
    wait_until "${answer_limit:-$ANSWER_LIMIT}" answers_http "$address" "$port" "$path" ||
        fail "${unit%.service} does not answer at $address:$port: $(last_words "$unit")" \
            "see 'journalctl -u $unit' on $HOST_NAME, then run up again"
}
