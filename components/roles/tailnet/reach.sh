#!/bin/bash
# uses: clock/with_head
# How a node reaches the head node over the tailnet, and whether its clock is the head node's: before it has the munge key.
#
# HEAD_ADDRESS   tailnet address of the head node

# The best way that was found: direct; peer-relay through a member of the tailnet; relay through one of the control
# server's, which carry a few Mbit/s.
path_to_head() {
    local answer
    answer=$(timeout 30 tailscale ping --c 4 --timeout 3s --until-direct "$HEAD_ADDRESS" 2>&1 || :)
    note "tailscale ping: $answer"
    if grep -q 'via [0-9\[]' <<<"$answer"; then
        echo direct
    elif grep -q 'via peer-relay(' <<<"$answer"; then
        echo peer-relay
    elif grep -q 'via DERP' <<<"$answer"; then
        echo relay
    else
        return 1
    fi
}

tailnet_reach() {
    local path
    path=$(path_to_head) || fail "the head node does not answer on the tailnet at $HEAD_ADDRESS" \
        "see 'tailscale netcheck' and 'tailscale ping $HEAD_ADDRESS' on $HOST_NAME; outgoing UDP 41641 or TCP 443 must be open"
    result path "$(json_string "$path")"
    compare_with_head
}
