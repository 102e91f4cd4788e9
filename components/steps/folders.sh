#!/bin/bash
# Folders that other accounts can write. An account can replace anything in its folder by a link, so root never makes,
# changes, writes or reads a path through such a folder. Root owns the folders above, each account gets one folder in
# them, and root reads its files as that account.
# Programs outside of steps contain this file too, so it uses only `fail` of base.sh, in functions that only steps call.

# Make root the owner of a folder: mode, path. The folder above must be root's, so that the path leads nowhere else.
# Afterwards only root can change its contents. The caller must still check files that an account put there before.
take_folder() {
    if [ -L "$2" ]; then
        echo "$2 is a link and must be a folder of root" >&2
        return 1
    fi
    [ -d "$2" ] || mkdir -p -- "$2" || return 1
    { [ -O "$2" ] && [ -G "$2" ]; } || chown root:root -- "$2" || return 1
    chmod "$1" -- "$2"
}

# Give an account a folder inside one of root's: account, mode, path. If another account owned the folder, its contents
# change owner too (after a restore, or if the account's uid changed). A file with a second hard link keeps its owner:
# it may belong to any account.
give_folder() {
    local account=$1 mode=$2 path=$3 above=${3%/*}
    [ -d "$above" ] || mkdir -p -- "$above"
    [ -O "$above" ] || fail "$above does not belong to root, and must contain the folder ${path##*/} of the account $account" \
        "run 'chown root:root $above', then run up again"
    if [ -L "$path" ] || { [ -e "$path" ] && [ ! -d "$path" ]; }; then
        fail "$path is a link or a file and must be a folder of the account $account; nothing was changed through it" \
            "find out who made it ('ls -ld $path'), remove it, then run up again"
    fi
    if [ -d "$path" ] && [ "$(stat -c %U -- "$path")" != "$account" ]; then
        # No other process can enter from now on. A process inside can move nothing: -execdir runs in each file's
        # folder.
        take_folder 0700 "$path"
        find "$path" -xdev -mindepth 1 \( -type d -o \( -type f -o -type l \) -links 1 \) -execdir chown -h "$account:$account" -- {} +
    fi
    install -d -m "$mode" -o "$account" -g "$account" -- "$path"
}

# Succeed if a path is a plain file or does not exist: not a link, nor a FIFO that would block a reader.
plain_or_none() { [ ! -L "$1" ] && { [ ! -e "$1" ] || [ -f "$1" ]; }; }

# Print the beginning of a file, read as the owner of its folder. If that is root, refuse a link.
read_theirs() {
    local owner
    owner=$(stat -c %U -- "${1%/*}" 2>/dev/null) || return 1
    if [ -O "${1%/*}" ] && [ -L "$1" ]; then return 1; fi
    as_user "$owner" 10 65536 cat -- "$1" </dev/null
}
