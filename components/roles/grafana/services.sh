#!/bin/bash
# uses: machine/daemon machine/artifact grafana/remove
# Install Grafana on the head node, or remove it, as the config says.
#
# GRAFANA_ENABLED
# GRAFANA_SOURCE, GRAFANA_SHA256   its archive and the checksum
# GRAFANA_PORT                     its port
# GRAFANA_PROMETHEUS_PORT          Prometheus' port
# GRAFANA_PASSWORD                 secret: the password of its account admin
# GRAFANA_UNIT, GRAFANA_CONFIG, GRAFANA_DATA_SOURCE, GRAFANA_PROVIDER   texts of its unit and configuration
# GRAFANA_DASHBOARDS               `file JSON`, one a line
# HEAD_ADDRESS                     tailnet address of this machine

GRAFANA_DIR=/etc/tailrack/grafana

grafana_services() {
    if [ "$GRAFANA_ENABLED" != true ]; then
        remove_grafana
        return
    fi
    install_grafana
    start_grafana
    remove_old_releases
}

# Unpack the archive to a folder that Grafana's account cannot change.
install_grafana() {
    local new=$GRAFANA_PROGRAMS/.new output disk_problem
    GRAFANA_HOME=$GRAFANA_PROGRAMS/$GRAFANA_SHA256
    [ ! -d "$GRAFANA_HOME" ] || return 0
    rm -rf "$new"
    install -d -m 0755 "$GRAFANA_PROGRAMS"
    install -d -m 0700 "$new"
    keep_artifact "$new/grafana.tar.gz" "$GRAFANA_SHA256" "$GRAFANA_SOURCE" \
        tailrack:monitoring.grafana.source tailrack:monitoring.grafana.sha256
    mkdir "$new/home"
    if ! output=$(tar -xzf "$new/grafana.tar.gz" -C "$new/home" --strip-components=1 --no-same-owner --no-same-permissions 2>&1); then
        rm -rf "$new"
        disk_problem=$(no_room_in "$GRAFANA_PROGRAMS")
        fail "cannot unpack $GRAFANA_SOURCE: ${disk_problem:-$(tail -n 1 <<<"$output")}" \
            "make room in $GRAFANA_PROGRAMS on $HOST_NAME, or set another tailrack:monitoring.grafana.source; then run up again"
    fi
    if ! output=$("$new/home/bin/grafana" --version 2>&1); then
        rm -rf "$new"
        fail "the program from $GRAFANA_SOURCE does not run here ($(uname -m)): $(tail -n 1 <<<"$output" | tr -cd '[:print:]' | cut -c 1-200)" \
            "set tailrack:monitoring.grafana.source to the Linux archive of Grafana 9.4 or newer for this architecture, and set its sha256"
    fi
    chmod -R u=rwX,go=rX "$new/home"
    sync -f "$new/home"
    mv -T "$new/home" "$GRAFANA_HOME"
    rm -rf "$new"
}

# Print a text of Grafana's configuration with this machine's address and ports.
grafana_text() {
    local text=${1//@ADDRESS@/$HEAD_ADDRESS}
    text=${text//@PROMETHEUS_PORT@/$GRAFANA_PROMETHEUS_PORT}
    printf '%s' "${text//@PORT@/$GRAFANA_PORT}"
}

start_grafana() {
    local unit=tailrack-grafana.service name json key file current=' ' files
    files=("/etc/systemd/system/$unit" "$GRAFANA_DIR"/{grafana.ini,password,key}
        "$GRAFANA_DIR"/provisioning/{datasources,dashboards}/tailrack.yml)
    install -d -m 0755 "$GRAFANA_DIR" "$GRAFANA_DIR"/{dashboards,provisioning}
    # Grafana logs an error for each of these folders that is missing.
    install -d -m 0755 "$GRAFANA_DIR"/provisioning/{datasources,dashboards,plugins,alerting,notifiers,access-control}
    # Grafana encrypts the passwords of data sources with this key, so create it only once.
    key=$(cat "$GRAFANA_DIR/key" 2>/dev/null) || :
    [[ $key =~ ^[0-9a-f]{64}$ ]] || key=$(head -c 32 /dev/urandom | sha256sum | cut -c 1-64)
    ensure_file "$GRAFANA_DIR/key" 0600 root:root "$key"
    ensure_file "$GRAFANA_DIR/password" 0600 root:root "$GRAFANA_PASSWORD"
    ensure_file "${files[0]}" 0644 root:root "${GRAFANA_UNIT//@HOME@/$GRAFANA_HOME}"
    ensure_file "${files[1]}" 0644 root:root "$(grafana_text "$GRAFANA_CONFIG")"
    ensure_file "${files[4]}" 0644 root:root "$(grafana_text "$GRAFANA_DATA_SOURCE")"
    ensure_file "${files[5]}" 0644 root:root "$GRAFANA_PROVIDER"
    # Grafana notices changes of these files.
    while read -r name json; do
        ensure_file "$GRAFANA_DIR/dashboards/$name" 0644 root:root "$json"
        current+="$name "
    done <<<"$GRAFANA_DASHBOARDS"
    for file in "$GRAFANA_DIR"/dashboards/*.json; do
        [[ $current == *" ${file##*/} "* ]] || rm -f "$file"
    done
    run_daemon "$unit" "$HEAD_ADDRESS" "$GRAFANA_PORT" /api/health monitoring.grafana.port "${files[@]}"
}

# Remove the releases before this one.
remove_old_releases() {
    local folder
    for folder in "$GRAFANA_PROGRAMS"/*; do
        [ "$folder" = "$GRAFANA_HOME" ] || rm -rf "$folder"
    done
}
