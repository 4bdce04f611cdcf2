"""GitHub's runners on a Kubernetes cluster, and the build service beside them."""
