package inspect

import (
	"fmt"
	"net/http"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// Explanation is why a proxy has one resource.
type Explanation struct {
	Type    string `json:"type"`    // cluster, endpoint, listener, route, secret, extension
	Message string `json:"message"` // Envoy's name of the type: envoy.config.cluster.v3.Cluster
	Name    string `json:"name"`
	Version string `json:"version"`
	Specs   []Made `json:"specs"`
	// Secret is where a Secret stands: it is told without a version and Specs, and also where the proxy has none.
	Secret *Standing `json:"secret,omitempty"`
}

// Made is one part of a resource: a route configuration has one for itself and one for each of its virtual hosts.
type Made struct {
	By     string  `json:"builder"` // what the part is, in plain words: "virtual host"
	Inputs []Input `json:"inputs"`
}

// Specs gives the Specs that made a resource, its own first, then those of its fragments; nil: there is no such one.
type Specs func(t xds.Type, name string) []any

// Explain finds a resource by name in all types of a set.
func Explain(set *manifest.Set, name string, specs Specs) []Explanation {
	all := []Explanation{}
	for t := range xds.NumTypes {
		r := set.Types[t].Get(name)
		if r == nil {
			continue
		}
		e := Explanation{Type: t.Noun(), Message: messageName(t), Name: name, Version: r.Version, Specs: []Made{}}
		for _, spec := range specs(t, name) {
			e.Specs = append(e.Specs, Made{By: partOf(spec), Inputs: Inputs(spec)})
		}
		all = append(all, e)
	}
	return all
}

// messageName is Envoy's name of a type.
func messageName(t xds.Type) string { return t.URL()[strings.LastIndexByte(t.URL(), '/')+1:] }

// partOf says what a Spec makes.
func partOf(spec any) string {
	if part, ok := parts[fmt.Sprintf("%T", spec)]; ok {
		return part
	}
	return "part"
}

func explain(c Config, r *http.Request) (any, error) {
	st, err := find(c, r)
	if err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("resource")
	if isSecret(name) && st.Secret != nil {
		if s, ok := st.Secret(name); ok {
			return []Explanation{{Type: xds.Secret.Noun(), Message: messageName(xds.Secret), Name: name, Specs: []Made{}, Secret: &s}}, nil
		}
	}
	set, specs, err := st.Explain()
	if err != nil {
		return nil, err
	}
	found := Explain(set, name, specs)
	if len(found) == 0 {
		return nil, httpError{http.StatusNotFound, fmt.Sprintf("proxy %s has no resource %q", st.Proxy, name)}
	}
	return found, nil
}
