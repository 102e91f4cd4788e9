#!/bin/bash
# Import each staged image to the share once, as an account that owns nothing else, and publish it when it is complete.
#
# ENROOT_PYXIS_IMAGES        `name where source`, one a line; where: sites, `all` or `none`
# ENROOT_PYXIS_CREDENTIALS   secret; logins at registries, in netrc format
# NFS_EXPORTS_PATH           directory of the share

IMPORT_USER=tailrack-images
# Folders of the logins (in memory) and of the import; both exist only during an import.
LOGINS=/run/tailrack-images
WORK=$STATE_DIR/images
# Seconds for one image; large ones take many minutes.
IMPORT_LIMIT=5400
# Limit in bytes of the import's output.
IMPORT_OUTPUT=10000000

# Only the importing account can read the logins. It cannot change them, because the folder is root's.
write_logins() {
    take_folder 0711 "$LOGINS"
    ensure_file "$LOGINS/.credentials" 0400 "$IMPORT_USER:$IMPORT_USER" "$ENROOT_PYXIS_CREDENTIALS"
}

# Remove the files of an import that has finished or was cut off.
clear_imports() { rm -rf "$LOGINS" "$WORK" "$NFS_EXPORTS_PATH"/containers/images/{.*.new,*.coming}; }

# Publish one image on the share: name, where, source. The previous image stays until the new one is complete.
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
            as_user "$IMPORT_USER" "$IMPORT_LIMIT" "$IMPORT_OUTPUT" env HOME="$WORK" ENROOT_CONFIG_PATH="$LOGINS" \
                /usr/local/lib/tailrack/import-image "$source" "$WORK" </dev/null || status=$?
            # Take the folder from the importing account, and accept the image only if it is a file with one name (no
            # link).
            take_folder 0700 "$WORK"
            [ -n "$(find "$image" -type f -links 1)" ] || status=1
        fi
        if [ "$status" -ne 0 ] || ! unsquashfs -s "$image" >/dev/null; then
            rm -f "$folder/$name.coming"
            IMAGES_FAILED+="${IMAGES_FAILED:+, }$name"
            return
        fi
        # Copy, so that root owns the file that nodes read; rename, so that no node reads an incomplete one.
        install -m 0644 -o root -g root "$image" "$folder/.$name.new"
        digest=$(sha256sum <"$folder/.$name.new" | cut -d ' ' -f 1)
        mv -fT "$folder/.$name.new" "$folder/$name.sqsh"
    fi
    ensure_file "$folder/$name.image" 0644 root:root "source=$source
sha256=$digest
where=$where"
    rm -f "$folder/$name.coming"
}

remove_other_images() {
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
    remove_other_images
    [ -n "$ENROOT_PYXIS_IMAGES" ] || return 0
    id -u "$IMPORT_USER" >/dev/null 2>&1 || useradd --system --user-group --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin "$IMPORT_USER"
    write_logins
    # `while read` would not work: an import reads from stdin too.
    readarray -t images <<<"$ENROOT_PYXIS_IMAGES"
    # shellcheck disable=SC2086  # name, where and source have no blanks
    for line in "${images[@]}"; do publish_image $line; done
    clear_imports
    [ -z "$IMAGES_FAILED" ] || fail "these images could not be imported: $IMAGES_FAILED" \
        "see the errors above; correct tailrack:containers.images or .registries, then run up again"
}
