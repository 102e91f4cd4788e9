#!/bin/bash
# The proxy that the machine's owner names in /etc/environment, for what asks the internet for something. A local step finds
# none of it in its environment, nor does a program that root starts as somebody else. Part of such programs too, so it uses
# nothing of base.sh.

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
