#!/bin/bash
# Remove the command. Role machine removes the folder with the other files.

tailrack_command_leave() {
    # The second text is that of earlier releases.
    ! grep -qsF -e /usr/local/lib/tailrack/program/ -e 'of tailrack, and the modules' /usr/local/bin/tailrack || rm -f /usr/local/bin/tailrack
}
