#!/bin/bash
# Images on the share: each imported once, by an account that owns nothing else, and published whole.
#
# ENROOT_PYXIS_IMAGES        `name where source`, one a line; where: sites, `all` or `none`
# ENROOT_PYXIS_CREDENTIALS   secret; log-ins at registries, as netrc has them
# NFS_EXPORTS_PATH           directory of the share

IMPORT_USER=tailrack-images
# Its log-ins, in memory, and where it works; both are there during an import alone.
LENT=/run/tailrack-images
WORK=$STATE_DIR/images
# Seconds for one image; large ones take many minutes.
IMPORT_LIMIT=5400
# Bytes that it may say.
IMPORT_SAYS=10000000

# Nobody else can read them at any moment. The folder is root's, so the file that root writes is the account's to read alone.
lend_credentials() {
    take_folder 0711 "$LENT"
    ensure_file "$LENT/.credentials" 0400 "$IMPORT_USER:$IMPORT_USER" "$ENROOT_PYXIS_CREDENTIALS"
}

# What an import leaves when it is over, or was cut off.
clear_imports() { rm -rf "$LENT" "$WORK" "$NFS_EXPORTS_PATH"/containers/images/{.*.new,*.coming}; }

# Bring one image to the share: name, where, source. What is there already stays until the new one is whole.
publish_image() {
    local name=$1 where=$2 source=$3 folder=$NFS_EXPORTS_PATH/containers/images digest status=0 image=$3
    if [ "$(sed -n 's/^source=//p' "$folder/$name.image" 2>/dev/null)" = "$source" ] && [ -s "$folder/$name.sqsh" ]; then
        digest=$(sed -n 's/^sha256=//p' "$folder/$name.image")
    else
        note "importing $name from $source"
        : >"$folder/$name.coming"
        if [[ $source != /* ]]; then
            image=$WORK/image.sqsh
            rm -rf "$WORK"
            give_folder "$IMPORT_USER" 0700 "$WORK"
            as_user "$IMPORT_USER" "$IMPORT_LIMIT" "$IMPORT_SAYS" env HOME="$WORK" ENROOT_CONFIG_PATH="$LENT" \
                /usr/local/lib/tailrack/import-image "$source" "$WORK" </dev/null || status=$?
            # From here on the importing account reaches nothing there: no link of its own is followed, and no file is taken
            # that has another name elsewhere.
            take_folder 0700 "$WORK"
            [ -n "$(find "$image" -type f -links 1)" ] || status=1
        fi
        if [ "$status" -ne 0 ] || ! unsquashfs -s "$image" >/dev/null; then
            rm -f "$folder/$name.coming"
            IMAGES_FAILED+="${IMAGES_FAILED:+, }$name"
            return
        fi
        # Copied by root, so that nobody else owns what nodes read; renamed, so that nobody reads half of it.
        install -m 0644 -o root -g root "$image" "$folder/.$name.new"
        digest=$(sha256sum <"$folder/.$name.new" | cut -d ' ' -f 1)
        mv -fT "$folder/.$name.new" "$folder/$name.sqsh"
    fi
    ensure_file "$folder/$name.image" 0644 root:root "source=$source
sha256=$digest
where=$where"
    rm -f "$folder/$name.coming"
}

forget_other_images() {
    local folder=$NFS_EXPORTS_PATH/containers/images path name
    for path in "$folder"/*.{image,sqsh}; do
        name=${path##*/}
        [ -e "$path" ] || continue
        grep -q "^${name%.*} " <<<"$ENROOT_PYXIS_IMAGES" || rm -f "$path"
    done
}

enroot_pyxis_services() {
    local line images
    IMAGES_FAILED=''
    install -d -m 0755 "$NFS_EXPORTS_PATH/containers/images"
    clear_imports
    forget_other_images
    [ -n "$ENROOT_PYXIS_IMAGES" ] || return 0
    id -u "$IMPORT_USER" >/dev/null 2>&1 || useradd --system --user-group --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin "$IMPORT_USER"
    lend_credentials
    # No loop that reads: an import would read on where it stands.
    readarray -t images <<<"$ENROOT_PYXIS_IMAGES"
    # shellcheck disable=SC2086  # name, where and source have no blanks
    for line in "${images[@]}"; do publish_image $line; done
    clear_imports
    [ -z "$IMAGES_FAILED" ] || fail "these images could not be imported: $IMAGES_FAILED" \
        "see above what was said; correct tailrack:containers.images or .registries, then run up again"
}
