#!/bin/bash
# uses: live/remove

live_leave() {
    remove_reader
    ! grep -qsF 'of tailrack, and the modules' /usr/local/bin/sll || rm -f /usr/local/bin/sll
}
