"""Role mlflow: MLflow's tracking server on the head node, for jobs and browsers."""
