"""Build the metric_relabel_configs with the series and labels that Prometheus accepts from an exporter. Pure.

Root of a node controls the whole answer of its exporter. Prometheus itself sets `instance`, `site` and `job`. From the
answer it keeps only known names, known labels, and values that no shell, chat or page can misread. It accepts the head
node's own metrics only from the head node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

# The script that writes the files replaces this by the head node's name.
HEAD = "@HEAD@"
TARGET_LABELS = ("instance", "job", "site")

NODE_NAME = "[a-z][a-z0-9-]*"
USER_NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_LETTERS = "A-Za-z0-9_."
# Labels with a word as value. A series with any other value is dropped; an honest exporter sends none.
WORDS = (
    "bytes", "chip", "collective", "collector", "controller", "cpu", "csrow", "currency", "error", "fstype", "gpu",
    "method", "mode", "node", "operation", "partition", "peer", "port", "proto", "protocol", "scope", "sensor",
    "slurm_job", "state", "user", "verdict",
)  # fmt: skip
PATH = f"/[{_LETTERS}/-]{{0,127}}"
# Labels with values that an honest machine's owner can choose. Other values are replaced by `odd-name-NUMBER`.
CHOSEN: Mapping[str, str] = {
    "device": f"[{_LETTERS}:-]{{1,63}}",
    "export": f"[{_LETTERS}:/-]{{1,127}}",
    "file": PATH,
    "kind": f"[A-Za-z0-9][{_LETTERS} -]{{0,63}}",
    "mountpoint": PATH,
}
ODD_NAMES = 1000

# Node exporter's series on every machine: subsystem, names.
_EXPORTER: Mapping[str, str] = {
    "boot_time": "seconds",
    "context": "switches_total",
    "cpu": "core_throttles_total guest_seconds_total scaling_frequency_hertz seconds_total",
    "disk": """discard_time_seconds_total discarded_sectors_total discards_completed_total flush_requests_total
        flush_requests_time_seconds_total io_now io_time_seconds_total io_time_weighted_seconds_total read_bytes_total
        read_time_seconds_total reads_completed_total reads_merged_total write_time_seconds_total
        writes_completed_total writes_merged_total written_bytes_total""",
    "edac": """correctable_errors_total csrow_correctable_errors_total csrow_uncorrectable_errors_total
        uncorrectable_errors_total""",
    "filefd": "allocated maximum",
    "filesystem": "avail_bytes device_error files files_free free_bytes readonly size_bytes",
    "hwmon": "fan_rpm temp_celsius temp_crit_celsius temp_max_celsius",
    "infiniband": """link_downed_total link_error_recovery_total physical_state_id
        port_constraint_errors_received_total port_constraint_errors_transmitted_total port_data_received_bytes_total
        port_data_transmitted_bytes_total port_discards_received_total port_discards_transmitted_total
        port_errors_received_total port_packets_received_total port_packets_transmitted_total port_transmit_wait_total
        rate_bytes_per_second state_id""",
    "md": "blocks blocks_synced disks disks_required state",
    "memory": """Active_bytes AnonPages_bytes Buffers_bytes Cached_bytes CommitLimit_bytes Committed_AS_bytes
        Dirty_bytes HugePages_Free HugePages_Total Hugepagesize_bytes Inactive_bytes Mapped_bytes MemAvailable_bytes
        MemFree_bytes MemTotal_bytes SReclaimable_bytes SUnreclaim_bytes Shmem_bytes Slab_bytes SwapCached_bytes
        SwapFree_bytes SwapTotal_bytes Unevictable_bytes Writeback_bytes""",
    "mountstats_nfs": """operations_major_timeouts_total operations_queue_time_seconds_total
        operations_received_bytes_total operations_request_time_seconds_total operations_requests_total
        operations_response_time_seconds_total operations_sent_bytes_total operations_transmissions_total
        direct_read_bytes_total direct_write_bytes_total read_bytes_total total_read_bytes_total
        total_write_bytes_total transport_backlog_queue_total write_bytes_total""",
    "netstat": """Icmp_InErrors IpExt_InOctets IpExt_OutOctets TcpExt_ListenDrops TcpExt_ListenOverflows
        TcpExt_TCPSynRetrans TcpExt_TCPTimeouts Tcp_ActiveOpens Tcp_CurrEstab Tcp_InErrs Tcp_InSegs Tcp_OutRsts
        Tcp_OutSegs Tcp_PassiveOpens Tcp_RetransSegs Udp_InDatagrams Udp_InErrors Udp_OutDatagrams Udp_RcvbufErrors
        Udp_SndbufErrors""",
    "network": """carrier carrier_changes_total mtu_bytes receive_bytes_total receive_drop_total receive_errs_total
        receive_fifo_total receive_multicast_total receive_packets_total speed_bytes transmit_bytes_total
        transmit_drop_total transmit_errs_total transmit_fifo_total transmit_packets_total transmit_queue_length up""",
    "nfs": """connections_total packets_total requests_total rpc_authentication_refreshes_total
        rpc_retransmissions_total rpcs_total""",
    "nfsd": """connections_total disk_bytes_read_total disk_bytes_written_total file_handles_stale_total packets_total
        reply_cache_hits_total reply_cache_misses_total reply_cache_nocache_total requests_total rpc_errors_total
        server_rpcs_total server_threads""",
    "pressure": """cpu_waiting_seconds_total io_stalled_seconds_total io_waiting_seconds_total
        memory_stalled_seconds_total memory_waiting_seconds_total""",
    "procs": "blocked running",
    "scrape_collector": "duration_seconds success",
    "textfile": "mtime_seconds scrape_error",
    "time": "seconds",
    "timex": "estimated_error_seconds maxerror_seconds offset_seconds sync_status",
    "vmstat": "oom_kill pgfault pgmajfault pgpgin pgpgout pswpin pswpout",
}
# Series of tailrack-figures on every machine.
_READERS = """certificate_end_timestamp_seconds collector_seconds collector_success gpu_memory_bytes
    gpu_memory_used_bytes gpu_power_watts gpu_temperature_celsius gpu_uncorrected_errors gpu_utilization_ratio gpus
    tailnet_direct tailnet_received_bytes_total tailnet_sent_bytes_total"""
# Series of tailrack-figures on the head node.
_HEAD_READERS = """backup_timestamp_seconds budget_spent_ratio budget_tell_ratio busbw_floor_gb_per_s
    busbw_gb_per_s measured_timestamp_seconds measurement_verdict node_cost_this_month node_idle_limit_seconds
    node_idle_seconds node_price_per_hour share_available_bytes share_bytes slurm_gpus slurm_gpus_in_use
    slurm_gpus_unused slurm_job_gpu_utilization_ratio slurm_job_gpus slurm_job_gpus_unused slurm_jobs
    slurm_jobs_hanging slurm_node_out slurm_nodes slurm_state_available_bytes slurm_state_bytes
    training_floor_images_per_second_per_rank training_images_per_second training_images_per_second_per_rank
    training_jitter_ratio training_measured_timestamp_seconds training_verdict"""

ANY_MACHINE = frozenset(
    {
        *(f"node_{subsystem}_{name}" for subsystem, names in _EXPORTER.items() for name in names.split()),
        *("node_forks_total", "node_intr_total", "node_load1", "node_load5", "node_load15"),
        *(f"tailrack_{name}" for name in _READERS.split()),
    }
)
HEAD_ONLY = frozenset(f"tailrack_{name}" for name in _HEAD_READERS.split())


def metric_relabel_configs() -> str:
    """Return the rules as JSON, which is also YAML, in the order in which Prometheus applies them."""
    # The mount point identifies a file system. Its device would be free text without a use.
    no_device = {
        "source_labels": ["__name__"],
        "regex": "node_filesystem_.*",
        "target_label": "device",
        "replacement": "",
    }
    odd_names = (rule for label in CHOSEN for rule in _without_odd_names(label))
    return json.dumps([_known_series(), no_device, *odd_names, _words(), _labels()])


def _known_series() -> Mapping[str, object]:
    everywhere, head = ("|".join(sorted(names)) for names in (ANY_MACHINE, HEAD_ONLY))
    return {
        "action": "keep",
        "source_labels": ["instance", "__name__"],
        "regex": f"[^;]*;({everywhere})|{HEAD};({head})",
    }


def _without_odd_names(label: str) -> Sequence[Mapping[str, object]]:
    # Prometheus' regular expressions have no negation: hash every value, then remove the hash of good values.
    spare = "__tmp_odd_name"
    return (
        {"action": "hashmod", "source_labels": [label], "modulus": ODD_NAMES, "target_label": spare},
        {"source_labels": [label], "regex": f"({CHOSEN[label]})?", "target_label": spare, "replacement": ""},
        {"source_labels": [spare], "regex": "([0-9]+)", "target_label": label, "replacement": "odd-name-$1"},
    )


def _words() -> Mapping[str, object]:
    # The number of separators is fixed, so a value that contains a separator does not match.
    word = f"[{_LETTERS}-]*"
    return {
        "action": "keep",
        "source_labels": [*WORDS],
        "regex": f"{word}(;{word}){{{len(WORDS) - 1}}}",
    }


def _labels() -> Mapping[str, object]:
    return {"action": "labelkeep", "regex": "|".join(["__name__", *TARGET_LABELS, *WORDS, *CHOSEN])}
