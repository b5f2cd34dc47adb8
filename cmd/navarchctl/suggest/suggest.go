// Package suggest makes Sidecars from the clusters that the proxies of a namespace have used.
//
// Owns: nothing.
// Reads: untrusted answers of Envoy's admin interface; services and routes of a snapshot.
// Never: uses a socket or a file; suggests a Sidecar where another one decides already, or for counters that cover too
// short a time.
package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Usage lists the clusters that one proxy has used since its start.
type Usage struct {
	Proxy     string // name.namespace
	Namespace string
	Observed  time.Duration
	Clusters  int      // all of the proxy's outbound clusters
	Used      []string // names of outbound clusters with a request or a connection
	Unknown   bool     // it sent to hosts that the mesh does not know (PassthroughCluster)
}

// Service is a Service or a ServiceEntry.
type Service struct {
	Namespace string
	Hosts     []string
	ExportTo  []string // "*" for all; names of namespaces
	AliasFor  string   // the host that an ExternalName Service leads to; empty: none
}

// Route is a VirtualService of the mesh.
type Route struct {
	Object       string // for messages
	Namespace    string
	Hosts        []string
	Destinations []string
}

// Sidecar is a Sidecar that exists.
type Sidecar struct {
	Namespace, Name string
	Selects         bool // it is for some workloads of the namespace
}

// Config is the part of the configuration that decides what a Sidecar has to import.
type Config struct {
	Root     string // namespace whose Sidecar holds for all
	Services []Service
	Routes   []Route
	Sidecars []Sidecar
}

// Suggestion is a Sidecar for one namespace, or the reason for none.
type Suggestion struct {
	Namespace string        `json:"namespace"`
	Proxies   int           `json:"proxies"`
	Observed  time.Duration `json:"observed"` // the shortest time of a proxy, in nanoseconds
	Clusters  int           `json:"clusters"` // the most that a proxy has
	Used      int           `json:"used"`     // by any of the proxies
	Skipped   string        `json:"skipped,omitempty"`
	Hosts     []string      `json:"hosts,omitempty"` // egress hosts
	// Unused lists hosts that no proxy used in that time, with the VirtualService that routes to each.
	Unused []string `json:"unusedButRouted,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Sidecars suggests a Sidecar for each namespace with proxies. A namespace gets no suggestion if the counters of one of
// its proxies cover less than atLeast.
func Sidecars(all []Usage, c Config, atLeast time.Duration) (out []Suggestion) {
	byNamespace := map[string][]Usage{}
	for _, u := range all {
		byNamespace[u.Namespace] = append(byNamespace[u.Namespace], u)
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		out = append(out, suggest(namespace, byNamespace[namespace], c, atLeast))
	}
	return out
}

func suggest(namespace string, proxies []Usage, c Config, atLeast time.Duration) Suggestion {
	s := Suggestion{Namespace: namespace, Proxies: len(proxies), Observed: proxies[0].Observed}
	clusters, youngest, unknown := map[string]bool{}, proxies[0], 0
	for _, p := range proxies {
		if p.Observed < youngest.Observed {
			youngest = p
		}
		if p.Unknown {
			unknown++
		}
		s.Clusters = max(s.Clusters, p.Clusters)
		for _, name := range p.Used {
			clusters[name] = true
		}
	}
	s.Observed, s.Used = youngest.Observed, len(clusters)
	if s.Skipped = c.decided(namespace); s.Skipped != "" {
		return s
	}
	if youngest.Observed < atLeast {
		s.Skipped = fmt.Sprintf("the counters of %s cover %v, less than %v (--for)", youngest.Proxy,
			youngest.Observed.Round(time.Second), atLeast)
		return s
	}
	used := map[string]bool{}
	for name := range clusters {
		if parts := strings.Split(name, "|"); len(parts) == 4 && parts[0] == "outbound" {
			used[parts[3]] = true
		}
	}
	s.Hosts, s.Unused = c.imports(namespace, used)
	for _, one := range c.Sidecars {
		if one.Namespace == namespace && one.Selects {
			s.Notes = append(s.Notes, "workloads that Sidecar "+namespace+"/"+one.Name+" selects keep that one")
		}
	}
	if unknown > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of the proxies sent to hosts that the mesh does not know: with the Sidecar, services"+
			" without an egress host are such hosts, without mutual TLS and routes", unknown))
	}
	return s
}

// decided returns why a namespace gets no suggestion: a Sidecar holds for it already. It is empty if none does.
func (c Config) decided(namespace string) string {
	for _, s := range c.Sidecars {
		switch {
		case s.Selects:
		case s.Namespace == namespace:
			return "Sidecar " + s.Namespace + "/" + s.Name + " says already what it imports"
		case s.Namespace == c.Root:
			return "Sidecar " + s.Namespace + "/" + s.Name + " of the root namespace holds for it, and a Sidecar of its own would end all" +
				" of its settings"
		}
	}
	return ""
}

// imports returns the egress hosts for used hosts, and the hosts that are routed to, but unused. The namespace's own
// services are always imported. Names that lead to a used host are imported too: those of VirtualServices that route
// there, and aliases.
func (c Config) imports(namespace string, used map[string]bool) (hosts, unused []string) {
	wanted := map[string]bool{"./*": true}
	want := func(of, host string) {
		if of != namespace {
			wanted[of+"/"+host] = true
		}
	}
	for _, r := range c.Routes {
		if !slices.ContainsFunc(r.Destinations, func(d string) bool { return used[d] }) {
			continue
		}
		for _, host := range r.Hosts {
			want(r.Namespace, host)
		}
	}
	routed := map[string]string{}
	for _, r := range c.Routes {
		reachable := r.Namespace == namespace || slices.ContainsFunc(r.Hosts, func(h string) bool {
			return used[h] || wanted[r.Namespace+"/"+h]
		})
		for _, d := range r.Destinations {
			if reachable && !used[d] && routed[d] == "" {
				routed[d] = r.Object
			}
		}
	}
	for _, s := range c.Services {
		if !s.visible(namespace) {
			continue
		}
		for _, host := range s.Hosts {
			if used[host] || used[s.AliasFor] {
				want(s.Namespace, host)
			}
			if by := routed[host]; by != "" && s.Namespace != namespace {
				unused = append(unused, s.Namespace+"/"+host+" ("+by+")")
			}
		}
	}
	slices.Sort(unused)
	return slices.SortedFunc(maps.Keys(wanted), func(a, b string) int {
		return cmp.Or(cmp.Compare(b2i(a != "./*"), b2i(b != "./*")), cmp.Compare(a, b))
	}), slices.Compact(unused)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// visible reports whether proxies of a namespace see the service.
func (s Service) visible(namespace string) bool {
	return s.Namespace == namespace || slices.Contains(s.ExportTo, "*") || slices.Contains(s.ExportTo, namespace)
}

// Object returns the Sidecar of a suggestion as an object of Kubernetes.
func (s Suggestion) Object() map[string]any {
	return map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
		"metadata": map[string]any{"name": "default", "namespace": s.Namespace},
		"spec":     map[string]any{"egress": []any{map[string]any{"hosts": s.Hosts}}}}
}
