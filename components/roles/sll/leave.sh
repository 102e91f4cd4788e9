#!/bin/bash
# uses: sll/remove

sll_leave() {
    remove_reader
    ! grep -qsF 'of tailrack, and the modules' /usr/local/bin/sll || rm -f /usr/local/bin/sll
}
