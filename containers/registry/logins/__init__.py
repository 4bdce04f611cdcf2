"""Logins that other programs keep or give: Docker's configuration, and Azure's identity of a job."""
