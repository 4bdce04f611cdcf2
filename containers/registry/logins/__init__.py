"""Logins that other programs keep or give: Docker's configuration, and the clouds' identities of a job."""
