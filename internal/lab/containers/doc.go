// Package containers tests the NIC in containers and pods with the default rights of Docker and Kubernetes, which are
// few.
//
// The containers are runc's. Their root file systems consist of this machine's own files.
package containers
