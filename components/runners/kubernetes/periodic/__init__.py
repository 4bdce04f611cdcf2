"""What looks after a cluster's runners every few minutes: CronJobs, each with a program and an account of its own."""
