// Package suggest derives a Sidecar for each namespace from the clusters that the proxies of the namespace have used.
//
// Owns: nothing.
// Reads: untrusted answers of Envoy's admin interface; services and routes of a snapshot.
// Never: uses a socket or a file; suggests a Sidecar where another Sidecar already applies to the whole namespace, or
// if the counters cover too short a time.
package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/model"
)

// Usage lists the clusters that one proxy has used since its start.
type Usage struct {
	Proxy     string // name.namespace
	Namespace string
	Observed  time.Duration // time since Envoy started, which its counters cover
	Clusters  int           // number of all outbound clusters, used or not
	Used      []string      // names of the outbound clusters with a request or a connection
	Unknown   bool          // the proxy sent to hosts that the mesh does not know (PassthroughCluster)
}

// Service is a Service or a ServiceEntry.
type Service struct {
	Namespace string
	Hosts     []string
	ExportTo  []string // "*" for all, or names of namespaces; the own namespace needs no entry; empty: only the own namespace
	AliasFor  string   // host that an ExternalName Service leads to; empty: the Service is no alias
}

// Route is a VirtualService for sidecars.
type Route struct {
	Object       string // name for messages
	Namespace    string
	ExportTo     []string // "*" for all, "." for the own namespace, or names of namespaces; empty: no namespace
	Hosts        []string
	Destinations []string // hosts to which it routes
}

// Sidecar is an existing Sidecar.
type Sidecar struct {
	Namespace, Name string
	Selects         bool // a workload selector limits the Sidecar to some workloads
}

// Config is the part of the configuration that decides what a Sidecar must import.
type Config struct {
	Root     string // root namespace, whose Sidecar applies to all namespaces
	Services []Service
	Routes   []Route
	Sidecars []Sidecar
}

// Suggestion is a Sidecar for one namespace, or the reason why the namespace gets no Sidecar.
type Suggestion struct {
	Namespace string        `json:"namespace"`
	Proxies   int           `json:"proxies"`           // number of proxies of the namespace, at least 1
	Observed  time.Duration `json:"observed"`          // shortest Usage.Observed of a proxy; nanoseconds in JSON
	Clusters  int           `json:"clusters"`          // greatest Usage.Clusters of a proxy
	Used      int           `json:"used"`              // number of different clusters that at least one proxy used
	Skipped   string        `json:"skipped,omitempty"` // reason for no Sidecar; empty: Hosts is the suggestion
	Hosts     []string      `json:"hosts,omitempty"`   // egress hosts, "./*" first, then sorted; nil if skipped
	// Unused lists hosts of other namespaces that no proxy used, but to which a VirtualService routes. An element is
	// "NAMESPACE/HOST (VIRTUALSERVICE)". The list is sorted, and nil if the namespace is skipped. The VirtualService
	// applies to the namespace, and belongs to it or has a used or imported host.
	Unused []string `json:"unusedButRouted,omitempty"`
	Notes  []string `json:"notes,omitempty"` // sentences for the operator; nil if skipped
}

// Sidecars returns a Suggestion for each namespace with proxies, sorted by namespace. Without proxies it returns nil. A
// namespace is skipped (Suggestion.Skipped) if a Sidecar without a selector already applies to it, or if the counters
// of one of its proxies cover less than atLeast. Sidecars does not change its arguments.
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

// suggest returns the suggestion for a namespace with at least one proxy.
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
			s.Notes = append(s.Notes, "workloads that Sidecar "+namespace+"/"+one.Name+" selects keep that Sidecar")
		}
	}
	if unknown > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of the proxies sent to hosts that the mesh does not know: with the Sidecar, services"+
			" without an egress host are such hosts, without mutual TLS and routes", unknown))
	}
	return s
}

// decided returns the reason to skip a namespace because a Sidecar already applies to all of it. Without such a Sidecar
// it returns "".
func (c Config) decided(namespace string) string {
	for _, s := range c.Sidecars {
		switch {
		case s.Selects:
		case s.Namespace == namespace:
			return "Sidecar " + s.Namespace + "/" + s.Name + " already states the imports"
		case s.Namespace == c.Root:
			return "Sidecar " + s.Namespace + "/" + s.Name + " of the root namespace applies, and a Sidecar of the namespace would" +
				" replace all of its settings"
		}
	}
	return ""
}

// imports returns the egress hosts for the used hosts, and the unused hosts that a VirtualService routes to. The
// namespace's own services are always imported. Further imports are names that lead to a used host: the hosts of
// VirtualServices that route to the used host, and its aliases.
func (c Config) imports(namespace string, used map[string]bool) (hosts, unused []string) {
	wanted := map[string]bool{"./*": true}
	want := func(of, host string) {
		if of != namespace {
			wanted[of+"/"+host] = true
		}
	}
	for _, r := range c.Routes {
		if !r.visible(namespace) || !slices.ContainsFunc(r.Destinations, func(d string) bool { return used[d] }) {
			continue
		}
		for _, host := range r.Hosts {
			want(r.Namespace, host)
		}
	}
	routed := map[string]string{}
	for _, r := range c.Routes {
		reachable := r.visible(namespace) && (r.Namespace == namespace || slices.ContainsFunc(r.Hosts, func(h string) bool {
			return used[h] || wanted[r.Namespace+"/"+h]
		}))
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
	return s.Namespace == namespace || model.Exported(s.ExportTo, s.Namespace, namespace)
}

// visible reports whether the VirtualService applies to proxies of a namespace.
func (r Route) visible(namespace string) bool {
	return model.Exported(r.ExportTo, r.Namespace, namespace)
}

// Object returns the Sidecar of a suggestion that is not skipped, as an object of Kubernetes named "default". The
// object shares the slice Hosts with the suggestion.
func (s Suggestion) Object() map[string]any {
	return map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
		"metadata": map[string]any{"name": "default", "namespace": s.Namespace},
		"spec":     map[string]any{"egress": []any{map[string]any{"hosts": s.Hosts}}}}
}
