"""The keeper that listens: GitHub tells it of assigned jobs by the protocol of runner scale sets, without a webhook."""
