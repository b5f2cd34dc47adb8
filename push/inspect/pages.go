package inspect

import (
	"context"
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
	"navarch.io/navarch/store/problem"
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
	// Planned is a resource of the newest set of its view, sent or not; nil: there is none. The function may be nil.
	Planned func(t xds.Type, name string) *xds.Resource
	// Explain plans the view of this proxy from scratch and gives the Specs of its resources.
	Explain func() (*manifest.Set, Specs, error)
	// Secret says where a Secret stands, by its resource name; false: the proxy has gone.
	Secret func(name string) (Standing, bool)
}

// TypeStatus is where one stream stands with one type.
type TypeStatus struct {
	Subscribed bool
	// Synced: the proxy has acknowledged, or stated when it resumed, the newest version of everything that it asks for.
	Synced bool
	// Sent and Acked are opaque, as istiod's; empty: none.
	Sent, Acked string
	Refused     []Refused
	Withheld    []Withheld
	Warming     *Warming // of clusters; nil: none warms
}

// Warming is why a proxy does not acknowledge clusters: Envoy does not before all clusters are warm, and a refusal is not visible before either.
type Warming struct {
	// Since is when the oldest response was sent that is not acknowledged; zero: there is none.
	Since time.Time `json:"since,omitzero"`
	// Clusters are those that may warm; More is how many others there are.
	Clusters []string `json:"clusters,omitempty"`
	More     int      `json:"more,omitempty"`
	// NotRequested: the proxy connected again while a cluster warmed, and does not ask for clusters until it is warm. It is sent them all the same.
	NotRequested bool `json:"not_requested,omitempty"`
}

// Refused is a resource that the proxy did not take.
type Refused struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Good    string `json:"last_good_version,omitempty"`
	Text    string `json:"error"`
	// Last is when the proxy refused the version for the last time; zero: not known.
	Last time.Time `json:"last_refusal,omitzero"`
	// Objects are what made it, the likeliest culprit first.
	Objects []string `json:"objects,omitempty"`
}

// Withheld is a version that this replica sends to no proxy of the stream's view, because several distinct identities refused
// it. The proxy keeps, or is sent, the last good version; where there is none it has no such resource.
type Withheld struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Good is the version that the proxy holds instead; empty: it has none.
	Good string `json:"last_good_version,omitempty"`
	// RefusedBy counts the distinct identities that are known to have refused the version; the count has a bound
	// (quarantine.Withheld).
	RefusedBy int       `json:"refused_by"`
	First     time.Time `json:"first_refusal"`
	Last      time.Time `json:"last_refusal"`
	// Text is what a proxy said when it refused the version, where one said so to this replica.
	Text string `json:"error,omitempty"`
	// Objects are what made it, the likeliest culprit first.
	Objects []string `json:"objects,omitempty"`
}

// Problem is one line of /debug/problems.
type Problem struct {
	Object   string           `json:"object"`
	Location string           `json:"location,omitempty"`
	Field    string           `json:"field,omitempty"`
	Code     problem.Code     `json:"code"`
	Analyzer problem.Analyzer `json:"analyzer,omitempty"` // Istio's code for it
	Severity problem.Severity `json:"severity"`
	Message  string           `json:"message"`
	// Related are other objects that may be the cause.
	Related []string `json:"related,omitempty"`
}

// Config says where the pages get their answers. Every function may be called from any goroutine.
type Config struct {
	Streams  func(id string) []Stream // those of the proxies with this name.namespace or node id, perhaps others; empty: all
	Snapshot func() *mirror.Snapshot  // nil before the first
	Problems func() []Problem
	Patches  func() []Patch  // nil: it serves no proxies
	Commits  func() []Commit // oldest first; nil: this process does not write
	// Fleet is how this replica sees the fleet, with the owner of each shard if asked; nil: it serves no proxies.
	Fleet func(owners bool) any
	// Leader says which process leads the ingesters. Errors are the store's. nil: this process does not stand for election.
	Leader func(context.Context) (Leader, error)
	// Clusters are those that are read, the config cluster first; nil: none is.
	Clusters func() []Cluster
	// Removals are those that the leader holds; nil: that is not known.
	Removals func() any
	// Turn is called before a page is made, made when it is there to be written, and read when the client has it or
	// has gone; an error refuses it (429). ctx is the request's; costly says that to make the page costs much. nil: pages have no bound.
	Turn    func(ctx context.Context, costly bool) (made, read func(), err error)
	ID      string // of this process, as ControlPlane.Identifier
	Version string
}

// page is one entry of /debug/list.
type page struct {
	path, help string
	serve      func(c Config, r *http.Request) (any, error)
	costly     bool // it plans, decodes all that a proxy has, or goes through all that is planned
}

var pages = []page{
	{"/debug/syncz", "Sent and acknowledged versions of every connected proxy.", syncz, false},
	{"/debug/config_dump", "What one proxy was sent, as Envoy's config_dump (without what only Envoy has: bootstrap, static resources): ?proxyID=name.namespace, &types=cluster,route.", configDump, true},
	{"/debug/explain", "Which objects made one resource, or where a Secret stands: ?proxyID=name.namespace&resource=NAME.", explain, true},
	{"/debug/connections", "Connected proxies.", connections, false},
	{"/debug/problems", "What is wrong with objects, files and their combination.", problems, true},
	{"/debug/patches", "How many resources each patch of an EnvoyFilter changes.", patches, true},
	{"/debug/removals", "Removals that the leader holds. POST with ?accept=ID lets one go, at the leader.", removals, false},
	{"/debug/snapshot", "Revision and number of records by kind.", snapshot, false},
	{"/debug/commits", "The newest commits of this process, oldest first: ?record=Kind/namespace/name.", commits, false},
	{"/debug/clusterz", "The clusters that are read, with their Secrets.", clusterz, false},
	{"/debug/registryz", "Services of the mesh, as istiod lists them.", registryz, true},
	{"/debug/configz", "Istio's objects that are acted on, in their normal form.", configz, true},
	{"/debug/mesh", "The mesh configuration, with its defaults.", mesh, false},
	{"/debug/leader", "Which process leads the ingesters, and up to when it has read the cluster.", leader, false},
	{"/debug/fleet", "The replicas, what each owns, and what this one serves; with ?owners=1 the owner of each shard.", fleet, false},
}

// httpError is an error with a status.
type httpError struct {
	status int
	text   string
}

func (e httpError) Error() string { return e.text }

// serveHTTP answers with the page as JSON, when it is its turn.
func (p page) serveHTTP(c Config, w http.ResponseWriter, r *http.Request) {
	made := func() {}
	if c.Turn != nil {
		done, read, err := c.Turn(r.Context(), p.costly)
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		defer read()
		made = done
	}
	answer, err := p.serve(c, r)
	if err != nil {
		http.Error(w, err.Error(), StatusCode(err))
		return
	}
	page := &text{}
	if err := page.page(answer); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	made()
	w.Header().Set("Content-Type", "application/json")
	_ = page.writeTo(w) // the client went away
}

// Handler serves the pages below /debug/.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	for _, p := range pages {
		mux.HandleFunc(p.path, func(w http.ResponseWriter, r *http.Request) { p.serveHTTP(c, w, r) })
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
	Proxy    string                `json:"proxy"`
	Type     string                `json:"proxy_type"`
	Cluster  string                `json:"cluster_id,omitempty"`
	Version  string                `json:"istio_version,omitempty"`
	Synced   map[string]bool       `json:"-"`
	Sent     map[string]string     `json:"-"`
	Acked    map[string]string     `json:"-"`
	Refused  map[string][]Refused  `json:"-"`
	Withheld map[string][]Withheld `json:"-"`
	Warming  *Warming              `json:"-"`
	Revision int64                 `json:"revision"`
}

// MarshalJSON adds cluster_sent, cluster_acked, cluster_synced and so on for the types that are subscribed, and cluster_refused,
// cluster_withheld, cluster_warming where there are such.
func (s Sync) MarshalJSON() ([]byte, error) {
	flat := map[string]any{"proxy": s.Proxy, "proxy_type": s.Type, "revision": s.Revision}
	if s.Cluster != "" {
		flat["cluster_id"] = s.Cluster
	}
	if s.Version != "" {
		flat["istio_version"] = s.Version
	}
	for noun, v := range s.Sent {
		flat[noun+"_sent"], flat[noun+"_acked"], flat[noun+"_synced"] = v, s.Acked[noun], s.Synced[noun]
	}
	for noun, list := range s.Refused {
		flat[noun+"_refused"] = list
	}
	for noun, list := range s.Withheld {
		flat[noun+"_withheld"] = list
	}
	if s.Warming != nil {
		flat[xds.Cluster.Noun()+"_warming"] = s.Warming
	}
	return json.Marshal(flat)
}

func syncz(c Config, _ *http.Request) (any, error) {
	all := []Sync{}
	for _, st := range sorted(c.Streams("")) {
		s := Sync{Proxy: st.Proxy, Cluster: st.Cluster, Version: st.Version, Revision: st.Revision,
			Synced: map[string]bool{}, Sent: map[string]string{}, Acked: map[string]string{}, Refused: map[string][]Refused{}, Withheld: map[string][]Withheld{}}
		s.Type, _, _ = strings.Cut(st.Node, "~")
		s.Warming = st.Types[xds.Cluster].Warming
		for t := range xds.NumTypes {
			if ts := st.Types[t]; ts.Subscribed {
				s.Sent[t.Noun()], s.Acked[t.Noun()], s.Synced[t.Noun()] = ts.Sent, ts.Acked, ts.Synced
				if len(ts.Refused) > 0 {
					s.Refused[t.Noun()] = ts.Refused
				}
				if len(ts.Withheld) > 0 {
					s.Withheld[t.Noun()] = ts.Withheld
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

// maxCandidates bounds how many proxies an error lists.
const maxCandidates = 8

// named is the proxy with a name.namespace or a node id. Of several streams of one node it is the newest; several nodes with
// one name (Pods of several clusters) are told apart by the node's id.
func named(c Config, id string) (Stream, error) {
	var found []Stream
	for _, st := range c.Streams(id) {
		if st.Node == id || st.Proxy == id {
			at := slices.IndexFunc(found, func(other Stream) bool { return other.Node == st.Node })
			switch {
			case at < 0:
				found = append(found, st)
			case st.Connected.After(found[at].Connected):
				found[at] = st
			}
		}
	}
	switch len(found) {
	case 0:
		return Stream{}, httpError{http.StatusNotFound, fmt.Sprintf("proxy %q is not connected to this replica", id)}
	case 1:
		return found[0], nil
	}
	var nodes []string
	for _, st := range found[:min(len(found), maxCandidates)] {
		nodes = append(nodes, st.Node)
	}
	return Stream{}, httpError{http.StatusBadRequest,
		fmt.Sprintf("%d proxies have the name %q: give the node id of one, for example %s", len(found), id, strings.Join(nodes, ", "))}
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
	for _, st := range sorted(c.Streams("")) {
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

func removals(c Config, _ *http.Request) (any, error) {
	if c.Removals == nil {
		return []any{}, nil
	}
	return c.Removals(), nil
}

func snapshot(c Config, _ *http.Request) (any, error) {
	s := c.Snapshot()
	if s == nil {
		return nil, errNoSnapshot
	}
	counts := map[string]int{}
	for _, kind := range model.Kinds() {
		counts[kind.String()] = s.Len(kind)
	}
	return map[string]any{"revision": s.Revision(), "records": counts, "id": c.ID, "version": c.Version}, nil
}
