"""What ``slipway inspect`` prints."""
