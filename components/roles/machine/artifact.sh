#!/bin/bash
# Files that come from elsewhere and are known by their SHA-256. What lies under a kept one's name is whole and is the one
# that was meant, or is not there; what is installed is a copy in a folder of root's own, looked at again.

is_file_with() { [ -n "$2" ] && [ "$(sha256sum <"$1" 2>/dev/null | cut -d ' ' -f 1)" = "$2" ]; }

# Keep a file: path, SHA-256, where it comes from (an address, or a path on this machine), and the keys of the config by
# which it is got from elsewhere, and known.
keep_artifact() {
    local path=$1 digest=$2 from=$3 from_key=$4 digest_key=$5 fresh=${1%/*}/.new status=0 proto='=https' found said='' reason
    if is_file_with "$path" "$digest"; then return 0; fi
    rm -f "$fresh"
    note "fetching $from"
    # Who asks for https is never led elsewhere.
    [[ $from != http:* ]] || proto='=http,https'
    case $from in
    /*) said=$(cp "$from" "$fresh" 2>&1) || status=$? ;;
    *) said=$(curl -fsSL --proto "$proto" --retry 3 --connect-timeout 20 --max-time 300 -o "$fresh" "$from" 2>&1) || status=$? ;;
    esac
    if [ "$status" -ne 0 ]; then
        rm -f "$fresh"
        [ -z "$said" ] || printf '%s\n' "$said" >&2
        reason=$(fetch_reason <<<"$said")
        found=$(no_room_in "${path%/*}")
        [ -z "$found" ] || fail "${path%/*}: $found" "make room there on $HOST_NAME, then run up again"
        fail "$from cannot be fetched from here${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "open the way there for $HOST_NAME, or name a place of your own as $from_key; then run up again")"
    fi
    if ! is_file_with "$fresh" "$digest"; then
        found=$(sha256sum <"$fresh" | cut -d ' ' -f 1)
        rm -f "$fresh"
        fail "${path##*/} from $from has the checksum $found, which is not the config's" \
            "find out which of the two is right before you write another one in $digest_key"
    fi
    chmod 0644 "$fresh"
    mv -fT "$fresh" "$path"
}

# Copy a kept file into a folder of root's own: from, folder, SHA-256. What counts is the copy, which nobody else can
# change afterwards.
take_artifact() {
    { cp "$1" "$2/" && is_file_with "$2/${1##*/}" "$3"; } || fail \
        "${1##*/} on the share is not the file that the config means" "run up again: the head node brings it anew"
}
