package inspect

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Stream is one connected proxy, as /debug shows it.
type Stream struct {
	Proxy     string // name.namespace
	Node      string // the node's id
	Identity  string // empty on plain text
	Address   string
	Cluster   string
	Version   string // of the agent
	Connected time.Time
	Types     [xds.NumTypes]TypeStatus
	Revision  int64            // of the newest set of its view
	Held      func() Resources // what it holds, or will once what is in flight has arrived
	// Explain plans the view of this proxy anew and gives the Specs of its resources.
	Explain func() (*manifest.Set, Specs, error)
	// Secret says where a Secret stands, by its resource name; false: the proxy has gone.
	Secret func(name string) (Standing, bool)
}

// TypeStatus is where one stream stands with one type. Sent and Acked are opaque: equal means in sync.
type TypeStatus struct {
	Subscribed  bool
	Sent, Acked string
	Refused     []Refused
}

// Refused is a resource that the proxy did not take.
type Refused struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Good    string `json:"last_good_version,omitempty"`
	Text    string `json:"error"`
	// Objects are what made it, the likeliest culprit first.
	Objects []string `json:"objects,omitempty"`
}

// Problem is one line of /debug/problems.
type Problem struct {
	Object  string `json:"object"`
	Origin  string `json:"origin,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Warning bool   `json:"warning,omitempty"`
	// Related are other objects that may be the cause.
	Related []string `json:"related,omitempty"`
}

// Config says where the pages get their answers. Every function may be called from any goroutine.
type Config struct {
	Streams  func() []Stream
	Snapshot func() *mirror.Snapshot // nil before the first
	Problems func() []Problem
	Commits  func() []Commit // oldest first; nil: this process does not write
	Fleet    func() any      // how this replica sees the fleet; nil: it serves no proxies
	ID       string          // of this process, as ControlPlane.Identifier
	Version  string
}

// page is one entry of /debug/list.
type page struct {
	path, help string
	serve      func(c Config, r *http.Request) (any, error)
}

var pages = []page{
	{"/debug/syncz", "Sent and acknowledged versions of every connected proxy.", syncz},
	{"/debug/config_dump", "What one proxy was sent: ?proxyID=name.namespace, &types=cluster,route.", configDump},
	{"/debug/explain", "Which objects made one resource, or where a Secret stands: ?proxyID=name.namespace&resource=NAME.", explain},
	{"/debug/connections", "Connected proxies.", connections},
	{"/debug/problems", "What is wrong with objects, files and their combination.", problems},
	{"/debug/snapshot", "Revision and number of records by kind.", snapshot},
	{"/debug/commits", "The newest commits of this process, oldest first: ?record=Kind/namespace/name.", commits},
	{"/debug/fleet", "The replicas, what each owns, and what this one serves.", fleet},
}

// httpError is an error with a status.
type httpError struct {
	status int
	text   string
}

func (e httpError) Error() string { return e.text }

// Handler serves the pages below /debug/.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	for _, p := range pages {
		mux.HandleFunc(p.path, func(w http.ResponseWriter, r *http.Request) {
			answer, err := p.serve(c, r)
			if err != nil {
				http.Error(w, err.Error(), StatusCode(err))
				return
			}
			w.Header().Set("Content-Type", "application/json")
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			_ = enc.Encode(answer) // the client went away
		})
	}
	list := func(w http.ResponseWriter, r *http.Request) {
		for _, p := range pages {
			fmt.Fprintf(w, "%-22s %s\n", p.path, p.help)
		}
		fmt.Fprintf(w, "%-22s %s\n", "/debug/pprof/", "Profiles of this process.")
	}
	mux.HandleFunc("/debug/list", list)
	mux.HandleFunc("/debug/{$}", list)
	return mux
}

// Sync is one proxy of /debug/syncz, with istiod's field names.
type Sync struct {
	Proxy    string               `json:"proxy"`
	Type     string               `json:"proxy_type"`
	Cluster  string               `json:"cluster_id,omitempty"`
	Version  string               `json:"istio_version,omitempty"`
	Sent     map[string]string    `json:"-"`
	Acked    map[string]string    `json:"-"`
	Refused  map[string][]Refused `json:"-"`
	Revision int64                `json:"revision"`
}

// MarshalJSON adds cluster_sent, cluster_acked and so on for the types that are subscribed.
func (s Sync) MarshalJSON() ([]byte, error) {
	flat := map[string]any{"proxy": s.Proxy, "proxy_type": s.Type, "revision": s.Revision}
	if s.Cluster != "" {
		flat["cluster_id"] = s.Cluster
	}
	if s.Version != "" {
		flat["istio_version"] = s.Version
	}
	for noun, v := range s.Sent {
		flat[noun+"_sent"], flat[noun+"_acked"] = v, s.Acked[noun]
	}
	for noun, list := range s.Refused {
		flat[noun+"_refused"] = list
	}
	return json.Marshal(flat)
}

func syncz(c Config, _ *http.Request) (any, error) {
	all := []Sync{}
	for _, st := range sorted(c.Streams()) {
		s := Sync{Proxy: st.Proxy, Cluster: st.Cluster, Version: st.Version, Revision: st.Revision,
			Sent: map[string]string{}, Acked: map[string]string{}, Refused: map[string][]Refused{}}
		s.Type, _, _ = strings.Cut(st.Node, "~")
		for t := range xds.NumTypes {
			if ts := st.Types[t]; ts.Subscribed {
				s.Sent[t.Noun()], s.Acked[t.Noun()] = ts.Sent, ts.Acked
				if len(ts.Refused) > 0 {
					s.Refused[t.Noun()] = ts.Refused
				}
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func sorted(streams []Stream) []Stream {
	slices.SortFunc(streams, func(a, b Stream) int {
		if n := strings.Compare(a.Proxy, b.Proxy); n != 0 {
			return n
		}
		return a.Connected.Compare(b.Connected)
	})
	return streams
}

// find is the proxy that the request names, by its name.namespace or its node id.
func find(c Config, r *http.Request) (Stream, error) {
	id := r.URL.Query().Get("proxyID")
	if id == "" {
		return Stream{}, httpError{http.StatusBadRequest, "proxyID is needed: ?proxyID=name.namespace"}
	}
	return named(c, id)
}

// named is the proxy with a name.namespace or a node id.
func named(c Config, id string) (Stream, error) {
	for _, st := range c.Streams() {
		if st.Proxy == id || st.Node == id {
			return st, nil
		}
	}
	return Stream{}, httpError{http.StatusNotFound, fmt.Sprintf("proxy %q is not connected to this replica", id)}
}

func configDump(c Config, r *http.Request) (any, error) {
	st, err := find(c, r)
	if err != nil {
		return nil, err
	}
	var wanted []xds.Type
	for noun := range strings.SplitSeq(r.URL.Query().Get("types"), ",") {
		if noun == "" {
			continue
		}
		t := xds.ParseNoun(noun)
		if t == xds.Unknown {
			return nil, httpError{http.StatusBadRequest, fmt.Sprintf("types: unknown type %q", noun)}
		}
		wanted = append(wanted, t)
	}
	return Render(st.Held(), wanted...)
}

// Explanation is why a proxy has one resource.
type Explanation struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Specs   []Made `json:"specs"`
	// Secret is where a Secret stands: it is told without a version and Specs, and also where the proxy has none.
	Secret *Standing `json:"secret,omitempty"`
}

// Made is one Spec: a route configuration has one for itself and one for each of its virtual hosts.
type Made struct {
	By     string  `json:"builder"`
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
		e := Explanation{Type: t.Noun(), Name: name, Version: r.Version, Specs: []Made{}}
		for _, spec := range specs(t, name) {
			e.Specs = append(e.Specs, Made{By: fmt.Sprintf("%T", spec), Inputs: Inputs(spec)})
		}
		all = append(all, e)
	}
	return all
}

func explain(c Config, r *http.Request) (any, error) {
	st, err := find(c, r)
	if err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("resource")
	if isSecret(name) && st.Secret != nil {
		if s, ok := st.Secret(name); ok {
			return []Explanation{{Type: xds.Secret.Noun(), Name: name, Specs: []Made{}, Secret: &s}}, nil
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

func connections(c Config, _ *http.Request) (any, error) {
	type connection struct {
		Proxy     string    `json:"proxy"`
		Node      string    `json:"node"`
		Identity  string    `json:"identity,omitempty"`
		Address   string    `json:"address"`
		Connected time.Time `json:"connectedAt"`
	}
	answer := struct {
		Total   int          `json:"totalClients"`
		Clients []connection `json:"clients"`
	}{Clients: []connection{}}
	for _, st := range sorted(c.Streams()) {
		answer.Clients = append(answer.Clients, connection{st.Proxy, st.Node, st.Identity, st.Address, st.Connected})
	}
	answer.Total = len(answer.Clients)
	return answer, nil
}

func problems(c Config, _ *http.Request) (any, error) {
	if all := c.Problems(); all != nil {
		return all, nil
	}
	return []Problem{}, nil
}

func snapshot(c Config, _ *http.Request) (any, error) {
	s := c.Snapshot()
	if s == nil {
		return nil, httpError{http.StatusServiceUnavailable, "there is no complete snapshot yet"}
	}
	counts := map[string]int{}
	for _, kind := range model.Kinds() {
		counts[kind.String()] = s.Len(kind)
	}
	return map[string]any{"revision": s.Revision(), "records": counts, "id": c.ID, "version": c.Version}, nil
}
