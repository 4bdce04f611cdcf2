"""How this machine reaches others: addresses, proxies, mirrors, trusted certificates."""
