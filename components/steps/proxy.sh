#!/bin/bash
# Use the proxy in /etc/environment for internet access. A local step and a program that root starts as another account
# do not get it from their environment.

use_proxy() {
    local name value
    while IFS='=' read -r name value; do
        name=${name#export }
        case ${name,,} in
            http_proxy | https_proxy | all_proxy | no_proxy)
                value=${value#[\"\']}
                export "$name=${value%[\"\']}"
                ;;
        esac
    done < <(cat /etc/environment 2>/dev/null)
}
