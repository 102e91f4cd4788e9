#!/bin/bash
# uses: clock/compare_with_head
# Find a node's path to the head node over the tailnet, and compare the clocks, before the node gets the munge key.
#
# HEAD_ADDRESS   tailnet address of the head node

# Find the best path: direct; peer-relay through a member; or relay through the control server's relays (a few Mbit/s). The search
# for a direct path takes seconds, while the rest of the step continues.
look_for_path() {
    rm -f "$PRIVATE_DIR"/path.* # left by a killed step
    PATH_SAID=$(mktemp "$PRIVATE_DIR/path.XXXXXX")
    timeout 30 tailscale ping --c 4 --timeout 3s --until-direct "$HEAD_ADDRESS" >"$PATH_SAID" 2>&1 9>&- &
    PATH_LOOK=$!
    LATER+=(report_path)
}

report_path() {
    local answer path=''
    wait "$PATH_LOOK" || note "tailscale ping found no direct path"
    answer=$(<"$PATH_SAID")
    rm -f "$PATH_SAID"
    note "tailscale ping: $answer"
    if grep -q 'via [0-9\[]' <<<"$answer"; then
        path=direct
    elif grep -q 'via peer-relay(' <<<"$answer"; then
        path=peer-relay
    elif grep -q 'via DERP' <<<"$answer"; then
        path=relay
    fi
    [ -n "$path" ] || fail "the head node does not answer on the tailnet at $HEAD_ADDRESS" \
        "see 'tailscale netcheck' and 'tailscale ping $HEAD_ADDRESS' on $HOST_NAME; outgoing UDP 41641 or TCP 443 must be open"
    result path "$(json_string "$path")"
}

tailnet_check_path() {
    look_for_path
    compare_with_head
}
