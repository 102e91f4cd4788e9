"""A fake of NCCL's RAS: it says so, listens where a real one would, and gives a recorded answer about itself.

ras_server.py ANSWER    as a job; rank 1 of the answer is its child. While the file `goes-on` exists, the counts grow.
"""

import os
import socket
import sys
import time
from pathlib import Path

port = int(os.environ["NCCL_RAS_ADDR"].rpartition(":")[2])
child = os.fork()
if not child:
    time.sleep(3600)
print(f"this is a fake of RAS at {os.environ['NCCL_RAS_ADDR']}, rank 1 is process {child}", flush=True)
answer = Path(sys.argv[1]).read_text(encoding="utf-8")
answer = answer.replace("192.0.2.2", "127.0.0.1").replace("1091,", f"{os.getpid()},").replace("1092,", f"{child},")
with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            request = b""
            while b"STATUS\n" not in request and (part := connection.recv(4096)):
                request += part
            grown = answer
            if Path("goes-on").exists():
                grown = answer.replace('"AllReduce": 2', f'"AllReduce": {int(time.time() * 1000)}2')
            connection.sendall(grown.encode())
