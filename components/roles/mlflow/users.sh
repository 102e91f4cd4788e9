#!/bin/bash
# uses: mlflow/install users/home
# Create MLflow's logins: the administrator's with the stack's password, and one for each user with a generated
# password. Users find theirs in the home, in the file that MLflow's client reads (~/.mlflow/credentials); it is in no
# job's environment.
#
# MLFLOW_ADMIN_PASSWORD   secret
# MLFLOW_ACCOUNTS         text of the program that writes them into MLflow's database
# USERS_LINES             `name uid gid`, one a line
# NFS_EXPORTS_PATH        folder of the share, which contains the homes

# The input of mlflow-accounts. Root opens it, so the server's account reads it as a stream and needs no access to the
# file.
MLFLOW_ACCOUNTS_INPUT=$PRIVATE_DIR/mlflow-accounts
# It marks the files that this script may replace, so the text cannot change.
MLFLOW_MARKER='# Written by tailrack: take this line out to keep a file of your own.'

# Write each user's credentials in the client's format to a file of root's, and remove those of former users.
create_credentials() {
    local name path password
    install -d -m 0700 -o root -g root "$MLFLOW_STATE" "$MLFLOW_STATE/users"
    while read -r name _; do
        path=$MLFLOW_STATE/users/$name
        [ ! -s "$path" ] || continue
        password=$(head -c 32 /dev/urandom | sha256sum | cut -c 1-64)
        ensure_file "$path" 0600 root:root "$MLFLOW_MARKER
[mlflow]
mlflow_tracking_username = $name
mlflow_tracking_password = $password"
    done <<<"$USERS_LINES"
    for path in "$MLFLOW_STATE"/users/*; do
        if ! grep -q "^${path##*/} " <<<"$USERS_LINES"; then rm -f "$path"; fi
    done
}

# Write the logins into MLflow's database, with MLflow's code and as its account.
update_accounts() {
    local name path output status=0
    install -d -m 0700 "$PRIVATE_DIR"
    rm -f "$MLFLOW_ACCOUNTS_INPUT"
    (
        umask 077
        printf 'admin %s\n' "$MLFLOW_ADMIN_PASSWORD"
        for path in "$MLFLOW_STATE"/users/*; do
            [ ! -e "$path" ] || printf '%s %s\n' "${path##*/}" "$(sed -n 's/^mlflow_tracking_password = //p' "$path")"
        done
    ) >"$MLFLOW_ACCOUNTS_INPUT"
    output=$(as_user "$MLFLOW_USER" 900 65536 env HOME=/nonexistent MLFLOW_DISABLE_TELEMETRY=true "$MLFLOW_PROGRAM/bin/python" -I \
        /usr/local/lib/tailrack/mlflow-accounts "$MLFLOW_DATA" "$(mlflow_version)" <"$MLFLOW_ACCOUNTS_INPUT" 2>&1) || status=$?
    rm -f "$MLFLOW_ACCOUNTS_INPUT"
    [ -z "$output" ] || printf '%s\n' "$output" >&2
    [ "$status" -eq 0 ] || fail "MLflow's database cannot be used: $(tail -n 1 <<<"$output" | tr -cd '[:print:]' | cut -c 1-300)" \
        "see the error above and 'df -h $MLFLOW_DATA' on $HOST_NAME; to start empty, move $MLFLOW_DATA/mlflow.db away; then run up again"
}

# Runs as the user. A credentials file without the marker, or anything else at that path, stays as it is.
# shellcheck disable=SC2016  # read by the user's bash
WRITE_CREDENTIALS='umask 077
cd "$HOME"
mkdir -p .mlflow
cd .mlflow
if [ -e credentials ] || [ -L credentials ]; then
    [ -f credentials ] || exit 3
    grep -qxF "$1" credentials || exit 3
fi
cat >credentials.tailrack
mv -fT credentials.tailrack credentials'

publish_credentials() {
    local name home
    while read -r name _; do
        home=$NFS_EXPORTS_PATH/home/$name
        as_user "$name" "$HOME_LIMIT" 65536 env HOME="$home" PATH=/usr/bin:/bin \
            bash --norc --noprofile -euc "$WRITE_CREDENTIALS" - "$MLFLOW_MARKER" <"$MLFLOW_STATE/users/$name" ||
            note "$name's ~/.mlflow/credentials stays as it is: it is not tailrack's file, or the disk is full"
    done <<<"$USERS_LINES"
}
