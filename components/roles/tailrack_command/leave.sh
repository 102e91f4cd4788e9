#!/bin/bash
# Remove the command. Role machine removes the folder with the other files.

tailrack_command_leave() {
    ! grep -qsF 'of tailrack, and the modules' /usr/local/bin/tailrack || rm -f /usr/local/bin/tailrack
}
