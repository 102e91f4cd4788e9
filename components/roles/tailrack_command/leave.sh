#!/bin/bash
# All else of it lies where role machine takes everything away.

tailrack_command_leave() {
    ! grep -qsF 'of tailrack, and the modules' /usr/local/bin/tailrack || rm -f /usr/local/bin/tailrack
}
