// Command kubernetes reads a manifest of a Job from its standard input as a cluster does that checks
// fields strictly, with the types that Kubernetes publishes (k8s.io/api, Apache License 2.0), and
// writes what it understands as JSON. It is a module of its own: rocesim does not need them.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	batch "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		var job batch.Job
		if err = yaml.UnmarshalStrict(text, &job); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(&job)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
