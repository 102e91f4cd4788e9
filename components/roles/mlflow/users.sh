#!/bin/bash
# uses: mlflow/install users/home
# Who may log in at MLflow: the administrator with the stack's password, and each user of the cluster with one that is made here.
# A user finds it in the home, where MLflow's own client looks for it (~/.mlflow/credentials), on every node and in no environment.
#
# MLFLOW_ADMIN_PASSWORD   secret
# MLFLOW_ACCOUNTS         the program that writes them into MLflow's database
# USERS_LINES             `name uid gid`, one a line
# NFS_EXPORTS_PATH        folder of the share, with their homes

# What is passed on: read by the server's account and by users, each as a stream that root has opened.
MLFLOW_LENT=$PRIVATE_DIR/mlflow-accounts
MLFLOW_OURS='# Written by tailrack: take this line out to keep a file of your own.'

# A file for each user, root's, as MLflow's client reads it. Those of users who are gone go.
keep_credentials() {
    local name path password
    install -d -m 0700 -o root -g root "$MLFLOW_KEPT" "$MLFLOW_KEPT/users"
    while read -r name _; do
        path=$MLFLOW_KEPT/users/$name
        [ ! -s "$path" ] || continue
        password=$(head -c 32 /dev/urandom | sha256sum | cut -c 1-64)
        ensure_file "$path" 0600 root:root "$MLFLOW_OURS
[mlflow]
mlflow_tracking_username = $name
mlflow_tracking_password = $password"
    done <<<"$USERS_LINES"
    for path in "$MLFLOW_KEPT"/users/*; do
        if ! grep -q "^${path##*/} " <<<"$USERS_LINES"; then rm -f "$path"; fi
    done
}

# The same in MLflow's database, by its own program and as its own account.
bring_accounts() {
    local name path said status=0
    install -d -m 0700 "$PRIVATE_DIR"
    rm -f "$MLFLOW_LENT"
    (
        umask 077
        printf 'admin %s\n' "$MLFLOW_ADMIN_PASSWORD"
        for path in "$MLFLOW_KEPT"/users/*; do
            [ ! -e "$path" ] || printf '%s %s\n' "${path##*/}" "$(sed -n 's/^mlflow_tracking_password = //p' "$path")"
        done
    ) >"$MLFLOW_LENT"
    said=$(as_user "$MLFLOW_USER" 900 65536 env HOME=/nonexistent MLFLOW_DISABLE_TELEMETRY=true "$MLFLOW_PROGRAM/bin/python" -I \
        /usr/local/lib/tailrack/mlflow-accounts "$MLFLOW_DATA" "$(mlflow_version)" <"$MLFLOW_LENT" 2>&1) || status=$?
    rm -f "$MLFLOW_LENT"
    [ -z "$said" ] || printf '%s\n' "$said" >&2
    [ "$status" -eq 0 ] || fail "MLflow's database cannot be used: $(tail -n 1 <<<"$said" | tr -cd '[:print:]' | cut -c 1-300)" \
        "see above and 'df -h $MLFLOW_DATA' on $HOST_NAME; to begin anew, move $MLFLOW_DATA/mlflow.db away; then run up again"
}

# As the user, in the home: a file that is not ours, or something else in its way, is left as it is.
# shellcheck disable=SC2016  # read by the user's bash
TAKE_CREDENTIALS='umask 077
cd "$HOME"
mkdir -p .mlflow
cd .mlflow
if [ -e credentials ] || [ -L credentials ]; then
    [ -f credentials ] || exit 3
    grep -qxF "$1" credentials || exit 3
fi
cat >credentials.tailrack
mv -fT credentials.tailrack credentials'

give_credentials() {
    local name home
    while read -r name _; do
        home=$NFS_EXPORTS_PATH/home/$name
        as_user "$name" "$HOME_LIMIT" 65536 env HOME="$home" PATH=/usr/bin:/bin \
            bash --norc --noprofile -euc "$TAKE_CREDENTIALS" - "$MLFLOW_OURS" <"$MLFLOW_KEPT/users/$name" ||
            note "$name has a file of another kind as ~/.mlflow/credentials, or no room: it stays as it is"
    done <<<"$USERS_LINES"
}
