#!/bin/bash
# uses: users/home nfs_exports/close_share
# Homes on the share, and one SSH key a user that opens every node for them. Runs where the share's directory is.
#
# USERS_LINES        `name uid gid`, one a line
# NFS_EXPORTS_PATH   directory of the share

# Run as the user, in the home: one key pair, authorized here. A file that is no plain file is left to its owner.
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
    # Folders whose parents are root's: nobody else can put anything in their place.
    install -d -m 0755 "$NFS_EXPORTS_PATH"
    [ -O "$NFS_EXPORTS_PATH" ] || fail "the share's folder $NFS_EXPORTS_PATH is not root's, and its owner could put anything in the place of a home" \
        "run 'chown root:root $NFS_EXPORTS_PATH' on $HOST_NAME, or write another folder in tailrack:storage.path; then run up again"
    install -d -m 0755 "$NFS_EXPORTS_PATH/home"
    # Like /tmp: everybody may put files there, nobody may remove another's.
    install -d -m 1777 "$NFS_EXPORTS_PATH/scratch"
    # Who had an account here and was kept out, and is a user now, is let in before anything is done as that user.
    [ ! -e "$SHARE_FILE" ] || close_share
    while read -r name uid gid; do
        home=$NFS_EXPORTS_PATH/home/$name
        if [ ! -d "$home" ]; then
            # Made beside it and renamed, so that a home that is there is one that was given to its user.
            rm -rf "$home.new"
            install -d -m 0700 -o "$uid" -g "$gid" "$home.new"
            mv -T "$home.new" "$home"
            in_home "$name" "$home" 'cp -rT /etc/skel .'
            note "made $home"
        fi
        in_home "$name" "$home" "$OWN_KEY" || note "the key of $name is not in order: something in $home/.ssh is in the way"
    done <<<"$USERS_LINES"
    forget_keys_of_gone_users
}

# Who is a user no more has an account without keys (machine.sh) and no keys here. The other files stay.
forget_keys_of_gone_users() {
    local name
    while read -r name; do
        [ -d "$NFS_EXPORTS_PATH/home/$name" ] || continue
        in_home "$name" "$NFS_EXPORTS_PATH/home/$name" 'rm -f .ssh/authorized_keys .ssh/id_ed25519 .ssh/id_ed25519.pub' ||
            note "keys of $name are still in $NFS_EXPORTS_PATH/home/$name/.ssh"
        if command -v scancel >/dev/null; then scancel -u "$name" || note "jobs of $name were not cancelled"; fi
    done < <(gone_users)
}
