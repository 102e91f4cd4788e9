#!/bin/bash
# uses: sll/remove

sll_leave() {
    remove_reader
    # The second text is that of earlier releases.
    ! grep -qsF -e /usr/local/lib/tailrack/program/ -e 'of tailrack, and the modules' /usr/local/bin/sll || rm -f /usr/local/bin/sll
}
