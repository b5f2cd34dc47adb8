package inspect

import (
	"fmt"
	"net/http"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// Explanation states the inputs of one resource of a proxy.
type Explanation struct {
	Type    string `json:"type"`    // cluster, endpoint, listener, route, secret, extension
	Message string `json:"message"` // Envoy's name of the type, such as envoy.config.cluster.v3.Cluster
	Name    string `json:"name"`
	Version string `json:"version"`
	Specs   []Made `json:"specs"` // the part for the resource itself, then those for its fragments (virtual hosts)
	// Secret is the state of a Secret, and nil for other resources. If Secret is set, Version is empty, Specs is an
	// empty list, and the proxy may lack the Secret.
	Secret *Standing `json:"secret,omitempty"`
}

// Made is one part of a resource with its inputs. A route configuration has a part for itself, and one for each of its
// virtual hosts.
type Made struct {
	By     string  `json:"builder"` // name of the part in plain words, such as "virtual host"
	Inputs []Input `json:"inputs"`
}

// Specs returns the Specs (structs of push/build) from which a resource was built. The Spec of the resource itself
// precedes the Specs of its fragments (such as virtual hosts). The result is nil if the resource does not exist.
type Specs func(t xds.Type, name string) []any

// Explain returns an explanation for each resource with the given name in a set. A type has at most one such resource.
// The explanations are in the order of xds.Type. Without such resources, the result is empty, not nil. The function
// specs must return the Specs of this set's resources.
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

// messageName returns the name of a type's message.
func messageName(t xds.Type) string { return t.URL()[strings.LastIndexByte(t.URL(), '/')+1:] }

// partOf returns the name of the part that a Spec builds.
func partOf(spec any) string {
	if part, ok := parts[fmt.Sprintf("%T", spec)]; ok {
		return part
	}
	return "part"
}

// explain serves /debug/explain.
func explain(c Config, r *http.Request) (any, error) {
	st, err := streamOf(c, r)
	if err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("resource")
	if isSecret(name) && st.Secret != nil {
		if s, ok := st.Secret(name); ok {
			s.Named = namedBy(st, name)
			one := Explanation{Type: xds.Secret.Noun(), Message: messageName(xds.Secret), Name: name, Specs: []Made{}, Secret: &s}
			return []Explanation{one}, nil
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
