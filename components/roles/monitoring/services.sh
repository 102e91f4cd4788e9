#!/bin/bash
# uses: monitoring/exporter monitoring/alertmanager monitoring/remove monitoring/target
# Run Prometheus on the head node, if the config turns monitoring on.
#
# MONITORING_ENABLED
# MONITORING_TOLD                                   settings of the head node's collectors, JSON
# MONITORING_PORT                                   its port
# MONITORING_CLUSTER                                the cluster's name, a label of all alerts
# MONITORING_RETENTION_DAYS, MONITORING_RETENTION_GB   how much data it keeps
# MONITORING_UNIT, MONITORING_CONFIG, MONITORING_RULES   texts of its unit, its configuration and its rules
# MONITORING_ACCEPTED                               the accepted series, JSON: accepted_series.py
# MONITORING_SCRAPE                                 `job port`, one a line: the ports to scrape on all members
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
        # Last, so that a failure of Alertmanager does not stop Prometheus.
        start_alertmanager
    else
        start_prometheus
        remove_alertmanager
    fi
}

# Print the configuration of a scrape job. $1: name, $2: port. Each member has a target file (target.sh). Root of a node
# controls the answer, so it is limited in size (after decompression), cannot redirect, cannot set times, and cannot
# claim to be another machine (accepted_series.py).
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

# Print the configuration for sending alerts to Alertmanager and for scraping it.
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
    local text=$MONITORING_CONFIG job port output credentials='' unit=tailrack-prometheus.service
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
    output=$(promtool check config "${read[1]}" 2>&1) ||
        fail "this release of Prometheus does not accept its configuration: $(grep -v '^ *$' <<<"$output" | tail -n 1)" \
            "see 'promtool check config ${read[1]}' on $HOST_NAME"
    run_daemon "$unit" "$HEAD_ADDRESS" "$MONITORING_PORT" /-/ready monitoring.port "${run_with[@]}"
    # A reload, because collection continues during it.
    if ! used_as_they_are prometheus-rules "${read[@]}"; then
        systemctl reload "$unit"
        used prometheus-rules "${read[@]}"
    fi
}
