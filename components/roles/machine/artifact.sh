#!/bin/bash
# Fetch files and verify them by SHA-256. A file under its final name is always complete and verified. Installations use
# a copy in a folder of root's, which is verified again.

is_file_with() { [ -n "$2" ] && [ "$(sha256sum <"$1" 2>/dev/null | cut -d ' ' -f 1)" = "$2" ]; }

# Fetch a file: path, SHA-256, source (an address, or a path on this machine), config key of the source, config key of
# the checksum.
keep_artifact() {
    local path=$1 digest=$2 source=$3 source_key=$4 digest_key=$5 partial=${1%/*}/.new
    local status=0 proto='=https' problem actual output='' reason
    if is_file_with "$path" "$digest"; then return 0; fi
    rm -f "$partial"
    note "fetching $source"
    # An https address must not redirect to http.
    [[ $source != http:* ]] || proto='=http,https'
    case $source in
    /*) output=$(cp "$source" "$partial" 2>&1) || status=$? ;;
    *) output=$(curl -fsSL --proto "$proto" --retry 3 --connect-timeout 20 --max-time 300 -o "$partial" "$source" 2>&1) || status=$? ;;
    esac
    if [ "$status" -ne 0 ]; then
        rm -f "$partial"
        [ -z "$output" ] || printf '%s\n' "$output" >&2
        reason=$(fetch_reason <<<"$output")
        problem=$(no_room_in "${path%/*}")
        [ -z "$problem" ] || fail "${path%/*}: $problem" "make room there on $HOST_NAME, then run up again"
        fail "$source cannot be fetched from here${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "open the way there for $HOST_NAME, or set $source_key to a copy of your own; then run up again")"
    fi
    if ! is_file_with "$partial" "$digest"; then
        actual=$(sha256sum <"$partial" | cut -d ' ' -f 1)
        rm -f "$partial"
        fail "${path##*/} from $source has the checksum $actual, which is not the config's" \
            "find out which of the two is right before you change $digest_key"
    fi
    chmod 0644 "$partial"
    mv -fT "$partial" "$path"
}

# Copy a file to a folder of root's and verify the copy, which no other account can change: source, folder, SHA-256.
take_artifact() {
    { cp "$1" "$2/" && is_file_with "$2/${1##*/}" "$3"; } || fail \
        "${1##*/} on the share does not have the checksum in the config" "run up again: the head node fetches it again"
}
