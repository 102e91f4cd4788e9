#!/bin/bash
# Why something could not be fetched: the cause that pip, curl or apt names among what it tried again and what came of that.

# Where a machine keeps the certificates of authorities that its owner trusts.
OWN_CERTIFICATES=/usr/local/share/ca-certificates
ALL_CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

# The cause on one line, of what a program printed: a certificate before a connection, and that before what it says in the end.
fetch_reason() {
    tr -d '\000-\010\013-\037\177' | awk '
        function keep(kind, text) { if (!(kind in first)) first[kind] = text }
        match($0, /certificate verify failed: [^()"\047]+/) { keep(1, substr($0, RSTART, RLENGTH)) }
        match($0, /SSL certificate problem: .*/) { keep(1, "certificate verify failed: " substr($0, RSTART + 25)) }
        match($0, /[Cc]ertificate verification failed: .*/) {
            text = substr($0, RSTART + 33); sub(/ +Could not handshake.*/, "", text)
            keep(1, "certificate verify failed: " text)
        }
        /certificate verify failed|CERTIFICATE_VERIFY_FAILED|server certificate verification failed/ { keep(2, "certificate verify failed") }
        match($0, /\[Errno -?[0-9]+\] [^()"\047]+/) { text = substr($0, RSTART, RLENGTH); sub(/^[^ ]+ [^ ]+ /, "", text); keep(3, text) }
        /^(ERROR|E: |curl: |fatal: )/ { keep(4, $0) }
        /[Ee]rror/ { keep(5, $0) }
        /[^ ]/ { keep(6, $0) }
        END { for (kind = 1; kind <= 6; kind++) if (kind in first) { sub(/ +$/, "", first[kind]); print first[kind]; exit } }' | cut -c 1-300
}

# What to do about it: about a certificate the same everywhere, about another cause what the caller knows.
fetch_remedy() {
    case $1 in
        'certificate verify failed'*)
            printf '%s' "a proxy that opens TLS, such as a company's, answers in that place with a certificate of its own: put the \
certificate of its authority (CA) into $OWN_CERTIFICATES/NAME.crt on $HOST_NAME and run update-ca-certificates there; pip takes it by \
'cert = $ALL_CERTIFICATES' below [global] in /etc/pip.conf; then run up again" ;;
        *) printf '%s' "$2" ;;
    esac
}
