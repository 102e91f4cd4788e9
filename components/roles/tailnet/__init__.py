"""The network that joins the nodes."""
