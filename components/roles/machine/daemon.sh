#!/bin/bash
# uses: firewall/hold
# Daemons in units of their own that answer HTTP: their port is free, they run with their files as they are now, and they answer.

# Seconds for a daemon to answer: some first read what they wrote last.
ANSWER_LIMIT=120

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
        "end that program ('ss -ltnp sport = :$3' on $HOST_NAME says which), or write another port in tailrack:$4; then run up again"
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

# What a daemon itself said last of what is wrong, else what it said last; systemd's words about it come after. On a full disk
# Prometheus ends with pages of addresses in memory, and says nothing of the disk: that is looked for.
last_words() {
    local room place=/var/lib/private/${1%.service}
    # systemd's place for what is nobody's account's; that of an account of its own.
    [ -d "$place" ] || place=/var/lib/${1%.service}
    room=$(df -B1M --output=avail "$place" 2>/dev/null | tail -n 1) || :
    if [ -n "$room" ] && [ "$room" -lt 16 ]; then printf '%s is on a disk that is full; ' "$place"; fi
    journalctl "_SYSTEMD_UNIT=$1" -n 300 -o cat --no-pager 2>/dev/null |
        awk '/level=(error|ERROR)|^panic:|^fatal error:/ { wrong = $0 } { last = $0 } END { print wrong == "" ? last : wrong }' |
        tr -cd '[:print:]' | cut -c 1-400
}

# Have a daemon run with its files as they are now, and wait until it answers: unit, address, port, path, the key of the config
# that says the port, files. A caller's answer_limit is another limit in seconds.
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
