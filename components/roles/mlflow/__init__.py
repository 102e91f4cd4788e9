"""Role mlflow: its settings, and what it gives the head node and jobs."""
