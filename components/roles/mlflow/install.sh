#!/bin/bash
# uses: mlflow/paths
# Install MLflow into a folder that root owns, from wheels whose digests are part of the step. No fetched code runs
# during the installation, and the server's account cannot change the folder.
#
# MLFLOW_REQUIREMENTS   pip's requirements file
# MLFLOW_INDEX          package index for pip: a URL, a folder on this machine, or empty for pip's default

MLFLOW_PROGRAM=/usr/local/lib/tailrack/mlflow-program
# Seconds to fetch 100 MB over a slow connection and to compile it.
MLFLOW_INSTALL_LIMIT=1500

# Print a digest that changes with the list of packages and with the machine's Python.
mlflow_digest() { { printf '%s\n' "$MLFLOW_REQUIREMENTS" && readlink -f /usr/bin/python3; } | sha256sum | cut -d ' ' -f 1; }

# Print MLflow's release from the list of packages.
mlflow_version() { sed -n 's/^mlflow==\([^ ]*\).*/\1/p' <<<"$MLFLOW_REQUIREMENTS"; }

# Fail if an account other than root could replace the wheels or a folder above them while pip reads them.
refuse_open_folder() {
    local path=$1 mode owner
    [ -d "$path" ] || fail "the folder $path, which tailrack:mlflow.index names, is not on $HOST_NAME" \
        "put the wheels there (docs/dependencies.md), or remove the key; then run up again"
    while [ -n "$path" ]; do
        read -r owner mode < <(stat -c '%u %a' "$path")
        if [ -L "$path" ] || [ "$owner" != 0 ] || ((8#$mode & 8#22)); then
            fail "$path can be changed by others than root on $HOST_NAME (owner $owner, mode $mode, or a link)" \
                "set tailrack:mlflow.index to a folder that only root can change; then run up again"
        fi
        path=${path%/*}
    done
}

install_mlflow() {
    local index=(--no-input) output='' digest folder=$MLFLOW_PROGRAM status=0 reason
    digest=$(mlflow_digest)
    [ "$(cat "$MLFLOW_PROGRAM/whole" 2>/dev/null)" != "$digest" ] || return 0
    case $MLFLOW_INDEX in
        /*)
            refuse_open_folder "$MLFLOW_INDEX"
            index+=(--no-index --find-links "$MLFLOW_INDEX")
            ;;
        ?*) index+=(--index-url "$MLFLOW_INDEX") ;;
    esac
    # A running server must not load files of two installations.
    systemctl stop tailrack-mlflow.service 2>/dev/null || note "MLflow is not running"
    rm -rf "$folder"
    install -d -m 0755 "$folder"
    printf '%s\n' "$MLFLOW_REQUIREMENTS" >"$folder/requirements.txt"
    note "installing MLflow $(mlflow_version)"
    python3 -I -m venv "$folder" || fail "cannot create a Python environment in $folder" \
        "see the error above and 'df -h /usr/local' on $HOST_NAME, then run up again"
    output=$(timeout -k 10 "$MLFLOW_INSTALL_LIMIT" "$folder/bin/python" -I -m pip --disable-pip-version-check install -q --no-cache-dir \
        --no-deps --require-hashes --only-binary :all: --retries 2 --timeout 20 "${index[@]}" -r "$folder/requirements.txt" 2>&1) || status=$?
    if [ "$status" -ne 0 ]; then
        printf '%s\n' "$output" >&2
        rm -rf "$folder"
        [ "$status" -ne 124 ] || output="ERROR: pip took longer than ${MLFLOW_INSTALL_LIMIT}s"
        reason=$(fetch_reason <<<"$output")
        fail "MLflow cannot be installed here: $reason" "$(fetch_remedy "$reason" \
            "let $HOST_NAME reach a package index, or set tailrack:mlflow.index to another index or a folder of wheels; then run up again")"
    fi
    printf '%s\n' "$digest" >"$folder/whole"
}
