// Package containers tests that the NIC works where its users are: in containers and pods
// with the rights that Docker and Kubernetes give by default, which are few.
//
// The containers are runc's, with roots made of this machine's own files.
package containers
