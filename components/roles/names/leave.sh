#!/bin/bash
# Names of the cluster's nodes are asked for no more.

names_leave() {
    systemctl disable -q --now tailrack-names.service
}
