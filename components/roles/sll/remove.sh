#!/bin/bash
# uses: machine/retire
# Remove the reader.

remove_reader() {
    retire tailrack-live.socket tailrack-live.service
    rm -f /usr/local/lib/tailrack/live-reader
}
