#!/bin/bash
# uses: users/home
# Accounts that tailrack created and that are unused. One whose uid changes in the config is created again: another machine may
# have refused the first uid, after this one had already accepted it.
#
# NFS_EXPORTS_PATH   directory of the share; on a node it does not exist

# Compare the home with a new one. Run as the user: a login leaves a history, and a key of the user's own changes the list.
# shellcheck disable=SC2016  # expanded by the user's bash
HOME_IS_NEW='diff -rq --no-dereference -x .ssh /etc/skel . >/dev/null && cmp -s .ssh/authorized_keys .ssh/id_ed25519.pub &&
[ "$(ls -A .ssh)" = "$(printf "%s\n" authorized_keys id_ed25519 id_ed25519.pub)" ]'

# Succeed if no process runs under the account and its home, if this machine has it, is as tailrack made it.
account_is_unused() {
    local home=$NFS_EXPORTS_PATH/home/$1 status=0
    pgrep -u "$1" >/dev/null || status=$?
    [ "$status" = 1 ] && { [ ! -d "$home" ] || in_home "$1" "$home" "$HOME_IS_NEW"; }
}

# Remove an unused account, its group and its home; users_machine and users_head create them with the new numbers.
remove_unused_account() {
    # tailrack's files alone are in that home (account_is_unused). The folder that contains the home belongs to root.
    rm -rf --one-file-system "$NFS_EXPORTS_PATH/home/${1:?}"
    userdel "$1"
    ! grep -qsxF "$1" "$GROUPS_MADE" || ! getent group "$1" >/dev/null || groupdel "$1"
    note "removed the unused account $1, whose uid changes"
}
