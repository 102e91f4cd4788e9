"""What is measured and how: the plan, the jobs and their bash."""
