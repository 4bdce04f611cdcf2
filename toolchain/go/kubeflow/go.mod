module slipway/kubeflow

go 1.26

require (
	github.com/kubeflow/mpi-operator v0.6.0
	github.com/kubeflow/training-operator v1.9.3
)
