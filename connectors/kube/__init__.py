"""What the connectors of Kubernetes share: how its API is asked, which pods belong to a workload, where they ran."""
