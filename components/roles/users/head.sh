#!/bin/bash
# uses: users/home nfs_exports/close_share
# Create homes on the share, with one SSH key per user that opens every node. Runs on the machine with the share's directory.
#
# USERS_LINES        `name uid gid`, one per line
# NFS_EXPORTS_PATH   directory of the share

# Run as the user, in the home: create one key pair and authorize it. Leave anything alone that is not a plain file.
# shellcheck disable=SC2016  # read by the user's bash
OWN_KEY='umask 077
mkdir -p .ssh
if [ ! -s .ssh/id_ed25519.pub ]; then
    rm -f .ssh/id_ed25519
    ssh-keygen -q -t ed25519 -N "" -C "$USER@cluster" -f .ssh/id_ed25519
fi
[ ! -e .ssh/authorized_keys ] || [ -f .ssh/authorized_keys ]
grep -qsxF "$(cat .ssh/id_ed25519.pub)" .ssh/authorized_keys || cat .ssh/id_ed25519.pub >>.ssh/authorized_keys
chmod 0600 .ssh/authorized_keys'

users_head() {
    local name uid gid home
    # Their parents belong to root, so no other account can replace them.
    install -d -m 0755 "$NFS_EXPORTS_PATH"
    [ -O "$NFS_EXPORTS_PATH" ] || fail "the share's folder $NFS_EXPORTS_PATH does not belong to root, so its owner could replace a user's home" \
        "run 'chown root:root $NFS_EXPORTS_PATH' on $HOST_NAME, or write another folder in tailrack:storage.path; then run up again"
    install -d -m 0755 "$NFS_EXPORTS_PATH/home"
    # Like /tmp: every user may add files, and only remove their own.
    install -d -m 1777 "$NFS_EXPORTS_PATH/scratch"
    # Admit new users to the share before commands run as them: they may have had an account here that was kept out.
    [ ! -e "$SHARE_FILE" ] || close_share
    while read -r name uid gid; do
        home=$NFS_EXPORTS_PATH/home/$name
        if [ ! -d "$home" ]; then
            # Create it under another name and rename it, so that an existing home always belongs to its user.
            rm -rf "$home.new"
            install -d -m 0700 -o "$uid" -g "$gid" "$home.new"
            mv -T "$home.new" "$home"
            in_home "$name" "$home" 'cp -rT /etc/skel .'
            note "created $home"
        fi
        in_home "$name" "$home" "$OWN_KEY" || note "could not create the key of $name: check $home/.ssh"
    done <<<"$USERS_LINES"
    forget_keys_of_gone_users
}

# Remove the keys of former users; machine.sh has closed their accounts. Other files stay.
forget_keys_of_gone_users() {
    local name
    while read -r name; do
        [ -d "$NFS_EXPORTS_PATH/home/$name" ] || continue
        in_home "$name" "$NFS_EXPORTS_PATH/home/$name" 'rm -f .ssh/authorized_keys .ssh/id_ed25519 .ssh/id_ed25519.pub' ||
            note "could not remove the keys of $name from $NFS_EXPORTS_PATH/home/$name/.ssh"
        if command -v scancel >/dev/null; then scancel -u "$name" || note "could not cancel the jobs of $name"; fi
    done < <(gone_users)
}
