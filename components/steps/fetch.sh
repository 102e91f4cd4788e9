#!/bin/bash
# Find the cause of a failed download in the output of pip, curl, apt or git.

# Certificates of the authorities that the machine's owner trusts.
OWN_CERTIFICATES=/usr/local/share/ca-certificates
ALL_CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

# Print the cause on one line, from a program's output on stdin: a certificate error first, then a connection error,
# then others.
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

# Print the remedy for the cause $1: for a certificate error always the same, else $2.
fetch_remedy() {
    case $1 in
        'certificate verify failed'*)
            printf '%s' "a proxy that opens TLS, such as a company's, answers with its own certificate: put the certificate of its \
authority (CA) into $OWN_CERTIFICATES/NAME.crt on $HOST_NAME and run update-ca-certificates there; for pip, write \
'cert = $ALL_CERTIFICATES' below [global] in /etc/pip.conf; then run up again" ;;
        *) printf '%s' "$2" ;;
    esac
}
