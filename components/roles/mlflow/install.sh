#!/bin/bash
# uses: mlflow/place
# MLflow in a folder of root's own, of wheels whose digests came with the step: nothing that is fetched runs while it is
# installed, and what it runs as cannot change it.
#
# MLFLOW_REQUIREMENTS   what is installed, as pip has it
# MLFLOW_INDEX          where pip gets it: an address, a folder here, or empty for pip's own

MLFLOW_PROGRAM=/usr/local/lib/tailrack/mlflow-program
# Seconds for 100 MB from far away and for what Python makes of it.
MLFLOW_INSTALL_LIMIT=1500

# What it is made of: another list, or another Python after an upgrade of the machine.
mlflow_wanted() { { printf '%s\n' "$MLFLOW_REQUIREMENTS" && readlink -f /usr/bin/python3; } | sha256sum | cut -d ' ' -f 1; }

# Its release, by the list.
mlflow_version() { sed -n 's/^mlflow==\([^ ]*\).*/\1/p' <<<"$MLFLOW_REQUIREMENTS"; }

# Fails where anybody but root could put other files into the folder of wheels, or links that lead elsewhere, while they are read.
refuse_open_folder() {
    local path=$1 mode owner
    [ -d "$path" ] || fail "the folder $path, which tailrack:mlflow.index names, is not on $HOST_NAME" \
        "put the wheels there (docs/dependencies.md), or leave the key out; then run up again"
    while [ -n "$path" ]; do
        read -r owner mode < <(stat -c '%u %a' "$path")
        if [ -L "$path" ] || [ "$owner" != 0 ] || ((8#$mode & 8#22)); then
            fail "$path can be changed by others than root on $HOST_NAME (owner $owner, mode $mode, or a link)" \
                "have tailrack:mlflow.index name a folder of root's; then run up again"
        fi
        path=${path%/*}
    done
}

install_mlflow() {
    local index=(--no-input) said='' wanted fresh=$MLFLOW_PROGRAM status=0 reason
    wanted=$(mlflow_wanted)
    [ "$(cat "$MLFLOW_PROGRAM/whole" 2>/dev/null)" != "$wanted" ] || return 0
    case $MLFLOW_INDEX in
        /*)
            refuse_open_folder "$MLFLOW_INDEX"
            index+=(--no-index --find-links "$MLFLOW_INDEX")
            ;;
        ?*) index+=(--index-url "$MLFLOW_INDEX") ;;
    esac
    # It does not go on with other files than it began with.
    systemctl stop tailrack-mlflow.service 2>/dev/null || note "no MLflow runs here"
    rm -rf "$fresh"
    install -d -m 0755 "$fresh"
    printf '%s\n' "$MLFLOW_REQUIREMENTS" >"$fresh/requirements.txt"
    note "installing MLflow $(mlflow_version)"
    python3 -I -m venv "$fresh" || fail "no Python environment can be made in $fresh" \
        "see above what it says and 'df -h /usr/local' on $HOST_NAME, then run up again"
    said=$(timeout -k 10 "$MLFLOW_INSTALL_LIMIT" "$fresh/bin/python" -I -m pip --disable-pip-version-check install -q --no-cache-dir \
        --no-deps --require-hashes --only-binary :all: --retries 2 --timeout 20 "${index[@]}" -r "$fresh/requirements.txt" 2>&1) || status=$?
    if [ "$status" -ne 0 ]; then
        printf '%s\n' "$said" >&2
        rm -rf "$fresh"
        [ "$status" -ne 124 ] || said="ERROR: it took longer than ${MLFLOW_INSTALL_LIMIT}s"
        reason=$(fetch_reason <<<"$said")
        fail "MLflow cannot be installed here: $reason" "$(fetch_remedy "$reason" \
            "open the way to a package index for $HOST_NAME, or name one, or a folder of wheels, in tailrack:mlflow.index; then run up again")"
    fi
    printf '%s\n' "$wanted" >"$fresh/whole"
}
