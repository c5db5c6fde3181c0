"""For load balancers, Kubernetes and Prometheus."""
