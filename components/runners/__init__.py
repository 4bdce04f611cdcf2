"""Runners: machines that take GitHub's jobs and build images. So far what they consist of, as plain data."""
