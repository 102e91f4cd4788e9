"""Bus bandwidth of a cluster, judged: pure Python, no pulumi import."""
