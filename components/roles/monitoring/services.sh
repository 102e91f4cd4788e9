#!/bin/bash
# uses: monitoring/exporter monitoring/alertmanager monitoring/remove monitoring/target
# Prometheus on the head node, where the config asks for it.
#
# MONITORING_ENABLED
# MONITORING_TOLD                                   what the head node's own figures are made by, JSON
# MONITORING_PORT                                   where it answers
# MONITORING_CLUSTER                                the cluster's name, which alerts have
# MONITORING_RETENTION_DAYS, MONITORING_RETENTION_GB   what it keeps
# MONITORING_UNIT, MONITORING_CONFIG, MONITORING_RULES   texts of its unit, its configuration and its rules
# MONITORING_ACCEPTED                               what it keeps of an answer, JSON: accepted_series.py
# MONITORING_SCRAPE                                 `job port`, one a line: what all members are asked for
# MONITORING_ALERTMANAGER, MONITORING_ALERTMANAGER_PORT   as in alertmanager.sh
# HEAD_ADDRESS                                      tailnet address of this machine

PROMETHEUS_DIR=/etc/tailrack/prometheus

monitoring_services() {
    write_scrape_target "$HEAD_ADDRESS"
    if [ "$MONITORING_ENABLED" != true ]; then
        remove_exporter
        remove_prometheus
        remove_alertmanager
        return
    fi
    ensure_file /etc/tailrack/monitoring.json 0600 root:root "$MONITORING_TOLD"
    start_exporter "$HEAD_ADDRESS" slurm head measured tailnet gpus certificate
    if [ -n "$MONITORING_ALERTMANAGER" ]; then
        ensure_alertmanager_password
        start_prometheus
        # Last: what keeps nobody from being told is no reason not to collect.
        start_alertmanager
    else
        start_prometheus
        remove_alertmanager
    fi
}

# What all members are asked for at a port: name, port. Of each there is a file (target.sh). Root of a node writes the answer: it
# is bounded before Prometheus reads it (the size is that of the text, also of a compressed answer), leads nowhere else, is of
# now, and says nothing of another machine (accepted_series.py).
scrape_job() {
    cat <<END
  - job_name: $1
    honor_labels: false
    honor_timestamps: false
    follow_redirects: false
    body_size_limit: 4MB
    sample_limit: 20000
    label_limit: 16
    label_name_length_limit: 64
    label_value_length_limit: 128
    file_sd_configs:
      - files: [$TARGETS_DIR/*.json]
    relabel_configs:
      - source_labels: [__address__]
        target_label: __address__
        replacement: \$1:$2
    metric_relabel_configs: $MONITORING_ACCEPTED
END
}

# Whom Prometheus tells, and asks how that goes.
alertmanager_job() {
    local login="basic_auth: {username: prometheus, password_file: /run/credentials/tailrack-prometheus.service/alertmanager}"
    cat <<END
  - job_name: alertmanager
    $login
    static_configs:
      - targets: ["127.0.0.1:$MONITORING_ALERTMANAGER_PORT"]
        labels: {instance: "$NODE_NAME"}

alerting:
  alertmanagers:
    - $login
      static_configs:
        - targets: ["127.0.0.1:$MONITORING_ALERTMANAGER_PORT"]
END
}

start_prometheus() {
    local text=$MONITORING_CONFIG job port said credentials='' unit=tailrack-prometheus.service
    local run_with=("/etc/systemd/system/$unit" "$PROMETHEUS_DIR/environment")
    local read=("$PROMETHEUS_DIR/rules.yml" "$PROMETHEUS_DIR/prometheus.yml")
    silence_daemon prometheus "$unit"
    while read -r job port; do text+=$'\n'$(scrape_job "$job" "$port"); done <<<"$MONITORING_SCRAPE"
    text=${text//@HEAD@/$NODE_NAME}
    text=${text//@CLUSTER@/$MONITORING_CLUSTER}
    text=${text//@ADDRESS@/$HEAD_ADDRESS}
    text=${text//@PORT@/$MONITORING_PORT}
    if [ -n "$MONITORING_ALERTMANAGER" ]; then
        text+=$'\n'$(alertmanager_job)
        credentials=LoadCredential=alertmanager:$ALERTMANAGER_DIR/password
        run_with+=("$ALERTMANAGER_DIR/password")
    fi
    ensure_file "${run_with[0]}" 0644 root:root "${MONITORING_UNIT//@CREDENTIALS@/$credentials}"
    ensure_file "${run_with[1]}" 0644 root:root "ADDRESS=$HEAD_ADDRESS
PORT=$MONITORING_PORT
DAYS=$MONITORING_RETENTION_DAYS
GIB=$MONITORING_RETENTION_GB"
    ensure_file "${read[0]}" 0644 root:root "${MONITORING_RULES//@HEAD@/$NODE_NAME}"
    ensure_file "${read[1]}" 0644 root:root "$text"
    said=$(promtool check config "${read[1]}" 2>&1) ||
        fail "this release of Prometheus does not take its configuration: $(grep -v '^ *$' <<<"$said" | tail -n 1)" \
            "see 'promtool check config ${read[1]}' on $HOST_NAME"
    run_daemon "$unit" "$HEAD_ADDRESS" "$MONITORING_PORT" /-/ready monitoring.port "${run_with[@]}"
    # What it has read already goes on being collected meanwhile.
    if ! used_as_they_are prometheus-rules "${read[@]}"; then
        systemctl reload "$unit"
        used prometheus-rules "${read[@]}"
    fi
}
