#!/bin/bash
# uses: machine/daemon machine/artifact grafana/remove
# Grafana on the head node, where the config asks for it. After Prometheus, whose own pages serve where there is no Grafana.
#
# GRAFANA_ENABLED
# GRAFANA_SOURCE, GRAFANA_SHA256   its archive, and what that is known by
# GRAFANA_PORT                     where it answers
# GRAFANA_PROMETHEUS_PORT          where Prometheus does
# GRAFANA_PASSWORD                 secret: its admin's
# GRAFANA_UNIT, GRAFANA_CONFIG, GRAFANA_DATA_SOURCE, GRAFANA_PROVIDER   texts of its unit and its configuration
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
    forget_grafanas
}

# Unpack the archive where nothing of it can be changed by whom it runs as.
install_grafana() {
    local new=$GRAFANA_PROGRAMS/.new said found
    GRAFANA_HOME=$GRAFANA_PROGRAMS/$GRAFANA_SHA256
    [ ! -d "$GRAFANA_HOME" ] || return 0
    rm -rf "$new"
    install -d -m 0755 "$GRAFANA_PROGRAMS"
    install -d -m 0700 "$new"
    keep_artifact "$new/grafana.tar.gz" "$GRAFANA_SHA256" "$GRAFANA_SOURCE" \
        tailrack:monitoring.grafana.source tailrack:monitoring.grafana.sha256
    mkdir "$new/home"
    if ! said=$(tar -xzf "$new/grafana.tar.gz" -C "$new/home" --strip-components=1 --no-same-owner --no-same-permissions 2>&1); then
        rm -rf "$new"
        found=$(no_room_in "$GRAFANA_PROGRAMS")
        fail "$GRAFANA_SOURCE cannot be unpacked: ${found:-$(tail -n 1 <<<"$said")}" \
            "make room in $GRAFANA_PROGRAMS on $HOST_NAME, or write another tailrack:monitoring.grafana.source; then run up again"
    fi
    if ! said=$("$new/home/bin/grafana" --version 2>&1); then
        rm -rf "$new"
        fail "what came from $GRAFANA_SOURCE does not run here ($(uname -m)): $(tail -n 1 <<<"$said" | tr -cd '[:print:]' | cut -c 1-200)" \
            "write the archive for Linux of Grafana 9.4 or newer for this kind of machine as tailrack:monitoring.grafana.source, and its sha256"
    fi
    chmod -R u=rwX,go=rX "$new/home"
    sync -f "$new/home"
    mv -T "$new/home" "$GRAFANA_HOME"
    rm -rf "$new"
}

# A text of Grafana's configuration with what is this machine's in it.
grafana_text() {
    local text=${1//@ADDRESS@/$HEAD_ADDRESS}
    text=${text//@PROMETHEUS_PORT@/$GRAFANA_PROMETHEUS_PORT}
    printf '%s' "${text//@PORT@/$GRAFANA_PORT}"
}

start_grafana() {
    local unit=tailrack-grafana.service name json key file shown=' ' files
    files=("/etc/systemd/system/$unit" "$GRAFANA_DIR"/{grafana.ini,password,key}
        "$GRAFANA_DIR"/provisioning/{datasources,dashboards}/tailrack.yml)
    install -d -m 0755 "$GRAFANA_DIR" "$GRAFANA_DIR"/{dashboards,provisioning}
    # It looks into each of them, and complains where one is missing.
    install -d -m 0755 "$GRAFANA_DIR"/provisioning/{datasources,dashboards,plugins,alerting,notifiers,access-control}
    # What it keeps passwords of data sources by. Made once: another one could read none of them.
    key=$(cat "$GRAFANA_DIR/key" 2>/dev/null) || :
    [[ $key =~ ^[0-9a-f]{64}$ ]] || key=$(head -c 32 /dev/urandom | sha256sum | cut -c 1-64)
    ensure_file "$GRAFANA_DIR/key" 0600 root:root "$key"
    ensure_file "$GRAFANA_DIR/password" 0600 root:root "$GRAFANA_PASSWORD"
    ensure_file "${files[0]}" 0644 root:root "${GRAFANA_UNIT//@HOME@/$GRAFANA_HOME}"
    ensure_file "${files[1]}" 0644 root:root "$(grafana_text "$GRAFANA_CONFIG")"
    ensure_file "${files[4]}" 0644 root:root "$(grafana_text "$GRAFANA_DATA_SOURCE")"
    ensure_file "${files[5]}" 0644 root:root "$GRAFANA_PROVIDER"
    # It sees by itself when one of these comes, changes or goes.
    while read -r name json; do
        ensure_file "$GRAFANA_DIR/dashboards/$name" 0644 root:root "$json"
        shown+="$name "
    done <<<"$GRAFANA_DASHBOARDS"
    for file in "$GRAFANA_DIR"/dashboards/*.json; do
        [[ $shown == *" ${file##*/} "* ]] || rm -f "$file"
    done
    run_daemon "$unit" "$HEAD_ADDRESS" "$GRAFANA_PORT" /api/health monitoring.grafana.port "${files[@]}"
}

# Releases that ran before this one.
forget_grafanas() {
    local other
    for other in "$GRAFANA_PROGRAMS"/*; do
        [ "$other" = "$GRAFANA_HOME" ] || rm -rf "$other"
    done
}
