"""The dev site: a tailnet control server and machines as systemd containers in networks that cannot reach each other.

The product reaches these machines by SSH as it would reach rented ones, and knows nothing of this package;
`python -m lab --help` lists the commands, which read one JSON object and print one JSON line.
"""
