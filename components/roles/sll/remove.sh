#!/bin/bash
# uses: machine/retire
# Nobody reads for others any more.

remove_reader() {
    retire tailrack-live.socket tailrack-live.service
    rm -f /usr/local/lib/tailrack/live-reader
}
