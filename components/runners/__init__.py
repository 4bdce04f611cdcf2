"""Runners: machines that take GitHub's jobs and build images."""
