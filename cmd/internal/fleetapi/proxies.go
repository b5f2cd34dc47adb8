package fleetapi

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Selection selects the proxies that match all its fields. Empty fields match all proxies.
type Selection struct {
	Window
	Name      string // name.namespace, or the node's id
	Namespace string
	State     string // one of States
	Version   string
	Zone      string // one or more consecutive parts of region/zone/sub-zone, separated by slashes
	Replica   string
	Cluster   string
	Labels    labels.Selector // nil: matches all proxies
	Sort      string          // one of Orders: the order of the items
}

// Orders are the permitted values of the parameter sort. Proxies with equal values are sorted by name. "state" begins
// with the worst state, and "since" begins with the oldest time.
var Orders = []string{"name", "namespace", "state", "since", "version", "zone", "replica"}

// ProxyParameters are the names of the parameters of /api/v1/proxies.
var ProxyParameters = []string{"name", "namespace", "state", "version", "zone", "replica", "cluster", "labels", "sort", "limit", "continue"}

// maxSelector bounds the label selector in bytes.
const maxSelector = 1 << 10

// ParseSelection parses the parameters of /api/v1/proxies. Without the parameter sort, Sort is "name". It fails if
// ParseWindow fails, if the state or the order is unknown, or if the labels are malformed or longer than 1 KiB. The
// error names the parameter. After an error, the selection is not to be used.
func ParseSelection(q url.Values) (s Selection, err error) {
	if s.Window, err = ParseWindow(q); err != nil {
		return s, err
	}
	s.Name, s.Namespace, s.State, s.Version = q.Get("name"), q.Get("namespace"), q.Get("state"), q.Get("version")
	s.Zone, s.Replica, s.Cluster, s.Sort = q.Get("zone"), q.Get("replica"), q.Get("cluster"), cmp.Or(q.Get("sort"), Orders[0])
	if s.State != "" && !slices.Contains(States, s.State) {
		return s, fmt.Errorf("state=%.40q: want one of %s", s.State, strings.Join(States, ", "))
	}
	if !slices.Contains(Orders, s.Sort) {
		return s, fmt.Errorf("sort=%.40q: want one of %s", s.Sort, strings.Join(Orders, ", "))
	}
	if text := q.Get("labels"); text != "" {
		if len(text) > maxSelector {
			return s, fmt.Errorf("labels: %d bytes, at most %d are read", len(text), maxSelector)
		}
		if s.Labels, err = labels.Parse(text); err != nil {
			return s, errors.New("labels: want a selector, as app=web,tier!=cache")
		}
	}
	return s, nil
}

// Selects reports whether a proxy matches all fields. The argument own has the labels of the proxy. Selects ignores
// Window and Sort.
func (s *Selection) Selects(p *Proxy, own map[string]string) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return (s.Name == "" || s.Name == p.Proxy || s.Name == p.Node) && is(s.Namespace, p.Namespace) && is(s.State, p.State) &&
		is(s.Version, p.Version) && is(s.Replica, p.Replica) && is(s.Cluster, p.Cluster) &&
		(s.Zone == "" || p.Zone == s.Zone || strings.HasPrefix(p.Zone, s.Zone+"/") || strings.Contains(p.Zone+"/", "/"+s.Zone+"/")) &&
		(s.Labels == nil || s.Labels.Matches(labels.Set(own)))
}

// ordered is a time layout. Its texts sort in the order of the times, if all times are in UTC. The texts of
// time.RFC3339Nano do not sort in this order, because they have no trailing zeros: 05.1Z sorts before 05Z.
const ordered = "2006-01-02T15:04:05.000000000Z07:00"

// key returns a text by which proxies sort in the selection's order.
func (s *Selection) key(p *Proxy) string {
	first := ""
	switch s.Sort {
	case "namespace":
		first = p.Namespace
	case "state":
		first = fmt.Sprint(slices.Index(States, p.State))
	case "since":
		first = "~" // proxies without Since come last
		if !p.Since.IsZero() {
			first = p.Since.UTC().Format(ordered)
		}
	case "version":
		first = p.Version
	case "zone":
		first = p.Zone
	case "replica":
		first = p.Replica
	}
	return strings.Join([]string{first, p.Proxy, p.Node, p.Replica, p.Connected.UTC().Format(ordered)}, "\x00")
}

// Proxies is one replica's part of an answer of /api/v1/proxies.
type Proxies struct {
	Sums  Sums    `json:"sums"`
	Items []Proxy `json:"items"`
	More  bool    `json:"more,omitempty"` // further selected proxies follow after Items; false if the limit is 0
	// Left has selected proxies whose stream at this replica ended in the last ten minutes. Their number is bounded.
	// These proxies may be connected to another replica now.
	Left []Proxy `json:"left,omitempty"`
	// Back has the Hash of the node id of each stream that began in the last ten minutes and is still connected.
	Back []uint64 `json:"back,omitempty"`
}

// Hash returns the 64-bit FNV-1a hash of a node's id, for Proxies.Back.
func Hash(node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node)) // never fails
	return h.Sum64()
}

// PartOf returns a replica's part, to which the caller adds Left and Back. The argument proxies has the replica's
// connected proxies for which Selects is true. PartOf does not check this. Sums counts all these proxies, and Items has
// those in the window. PartOf does not change the slice proxies.
func (s *Selection) PartOf(proxies []Proxy) (part Proxies) {
	for i := range proxies {
		part.Sums.Add(&proxies[i])
	}
	next := ""
	part.Items, next = cut(s.Window, proxies, false, s.key)
	part.More = next != ""
	return part
}

// MergeProxies merges the replicas' parts. A proxy in Left of one or more parts counts once as Gone. It does not count
// if a part has the Hash of its node id in Back, because the proxy has connected again. Proxies that are Gone are items
// only if the selection's State is Gone. MergeProxies sets only Sums, Items and Next of the answer.
func (s *Selection) MergeProxies(parts []From[Proxies]) (a Answer[Proxy]) {
	var all []Proxy
	sums, more, back := &Sums{}, false, map[uint64]bool{}
	for _, f := range parts {
		sums.plus(&f.Part.Sums)
		all, more = append(all, f.Part.Items...), more || f.Part.More
		for _, hash := range f.Part.Back {
			back[hash] = true
		}
	}
	for _, f := range parts {
		for i := range f.Part.Left {
			if hash := Hash(f.Part.Left[i].Node); !back[hash] {
				back[hash] = true // a proxy that left several replicas counts once
				sums.AddGone(&f.Part.Left[i])
				if s.State == Gone {
					all = append(all, f.Part.Left[i])
				}
			}
		}
	}
	a.Sums = sums
	a.Items, a.Next = cut(s.Window, all, more, s.key)
	return a
}
