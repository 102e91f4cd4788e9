"""The report: one HTML page of nodes, measurements and findings."""
