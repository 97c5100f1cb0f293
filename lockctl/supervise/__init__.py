"""Two processes, keeper and guard, that no process of the job can outlive."""
