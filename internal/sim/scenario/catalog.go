package scenario

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/qp/profile/catalog"
)

// sources of load balancers and topologies that papers describe; all others are described in docs/reference/simulator.md.
var sources = map[string]string{
	"drill": "Ghorbani et al., SIGCOMM 2017", "letflow": "Vanini et al., NSDI 2017", "conweave": "Song et al., SIGCOMM 2023",
	"ksp": "Singla et al., NSDI 2012, 5.1", "fat-tree": "Al-Fares et al., SIGCOMM 2008", "jellyfish": "Singla et al., NSDI 2012",
}

// Catalog returns the load balancers, topologies, workloads and events that scenarios can name, with their keys.
func Catalog() (all []catalog.Entry) {
	for _, k := range []struct {
		kind string
		keys map[string][]string
		of   reflect.Type
	}{
		{"balance", balanceKeys, reflect.TypeFor[fabric.BalanceConfig]()},
		{"topology", topologyKeys, reflect.TypeFor[Topology]()},
		{"workload", workKeys, reflect.TypeFor[Work]()},
		{"event", eventKeys, reflect.TypeFor[Event]()},
	} {
		for _, name := range slices.Sorted(maps.Keys(k.keys)) {
			e := catalog.Entry{Kind: k.kind, Name: name, Source: sources[name]}
			if e.Source == "" {
				e.Source = "docs/reference/simulator.md"
			}
			for _, key := range k.keys[name] {
				e.Parameters = append(e.Parameters, catalog.Parameter{Name: key, Type: typeOf(k.of, key)})
			}
			all = append(all, e)
		}
	}
	for _, name := range fabric.Balancers() {
		if _, own := balanceKeys[name]; !own {
			all = append(all, catalog.Entry{Kind: "balance", Name: name, Source: "this program", Parameters: catalog.Describe(fabric.Parameters(name))})
		}
	}
	return all
}

// typeOf returns the type of a key's values.
func typeOf(of reflect.Type, key string) string {
	f, _ := of.FieldByNameFunc(func(name string) bool {
		f, _ := of.FieldByName(name)
		tag, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		return tag == key || tag == "" && strings.EqualFold(name, key)
	})
	if f.Type == nil {
		return "text"
	}
	switch f.Type.Name() {
	case "Bytes":
		return "size"
	case "Rate":
		return "rate"
	case "Time":
		return "duration"
	}
	switch f.Type.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "list"
	}
	return "integer"
}
