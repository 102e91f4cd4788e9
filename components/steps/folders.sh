#!/bin/bash
# Folders that other accounts can write. An account that can write a folder can put a link in the place of anything in it, so
# root makes, changes, writes and reads nothing by a path that leads through one. Root owns the folders above, and an account
# gets one folder in them; root reads what lies there as that account.
# Programs of their own contain this file too, so it uses nothing of base.sh but `fail`, in what only steps call.

# Make root the owner of a folder, whoever had it: mode, path. The folder above it is root's, so this reaches nothing else.
# Afterwards nobody but root changes what is in it; what an account has put there before is still to be looked at.
take_folder() {
    if [ -L "$2" ]; then
        echo "$2 is a link, and should be a folder of root's" >&2
        return 1
    fi
    [ -d "$2" ] || mkdir -p -- "$2" || return 1
    { [ -O "$2" ] && [ -G "$2" ]; } || chown root:root -- "$2" || return 1
    chmod "$1" -- "$2"
}

# Give an account a folder in one of root's: account, mode, path. What the folder holds becomes the account's, where it was
# another one's (a backup brought it back, or the account has another number). A file that has a second name elsewhere keeps
# its owner: it may be anybody's.
give_folder() {
    local account=$1 mode=$2 path=$3 above=${3%/*}
    [ -d "$above" ] || mkdir -p -- "$above"
    [ -O "$above" ] || fail "$above is not root's, and $account's folder ${path##*/} is to be in it" \
        "run 'chown root:root $above', then run up again"
    if [ -L "$path" ] || { [ -e "$path" ] && [ ! -d "$path" ]; }; then
        fail "$path is a link or a file, and should be a folder of the account $account; nothing was changed through it" \
            "find out who put it there ('ls -ld $path'), take it away, then run up again"
    fi
    if [ -d "$path" ] && [ "$(stat -c %U -- "$path")" != "$account" ]; then
        # Nobody else gets in meanwhile. Who is in there already moves nothing either: each is changed from its own folder.
        take_folder 0700 "$path"
        find "$path" -xdev -mindepth 1 \( -type d -o \( -type f -o -type l \) -links 1 \) -execdir chown -h "$account:$account" -- {} +
    fi
    install -d -m "$mode" -o "$account" -g "$account" -- "$path"
}

# Succeed where a path is a plain file or nothing: no link, and no FIFO that a reader waits at.
plain_or_none() { [ ! -L "$1" ] && { [ ! -e "$1" ] || [ -f "$1" ]; }; }

# Print the beginning of a file, read as the account that owns the folder around it. Where that is root, no link is followed.
read_theirs() {
    local owner
    owner=$(stat -c %U -- "${1%/*}" 2>/dev/null) || return 1
    if [ -O "${1%/*}" ] && [ -L "$1" ]; then return 1; fi
    as_user "$owner" 10 65536 cat -- "$1" </dev/null
}
