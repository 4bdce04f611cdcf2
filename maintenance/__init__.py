"""The tools of Slipway's maintainers: tables from public sources, contracts with upstreams, generated files."""
