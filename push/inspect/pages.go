package inspect

import (
	"context"
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

// Stream is one connected proxy. Held and Explain have to be set.
type Stream struct {
	Proxy     string // name.namespace, or the node ID if the name is unknown
	Node      string // node ID
	Identity  string // SPIFFE ID; empty on plain text
	Address   string // host:port of the connection's peer
	Cluster   string // Kubernetes cluster; empty: unknown
	Version   string // version of the agent
	Namespace string
	Zone      string            // region/zone/sub-zone, as far as the node states it
	Labels    map[string]string // labels in the node
	Connected time.Time
	// Behind is the time of the first unacknowledged change of the proxy's view (the group of proxies with equal
	// configuration). It is zero if the proxy is up to date, or if the view has not changed since the proxy connected.
	Behind   time.Time
	Types    [xds.NumTypes]TypeStatus
	Revision int64            // store's revision of the newest set (all resources) of the view
	Held     func() Resources // returns the resources that the proxy has; responses in flight count as accepted
	// Planned returns a resource of the newest set of the view, even if it is not sent yet. It returns nil if the set
	// does not have the resource. The field may be nil.
	Planned func(t xds.Type, name string) *xds.Resource
	// Explain returns the newest set of the view and the Specs (inputs) of its resources. It fails if the proxy has
	// disconnected.
	Explain func() (*manifest.Set, Specs, error)
	// Secret returns the state of the Secret with a resource name. It returns false if the proxy has disconnected. The
	// field may be nil.
	Secret func(name string) (Standing, bool)
	// Lacks returns the names of the Secrets that the proxy requests and that are not planned for it, each with the
	// reason. The field may be nil.
	Lacks func() map[string]string
	// Closing returns the policies that select the proxy and cannot be enforced, as "Kind namespace/name". Because of
	// them, the proxy refuses all traffic. The field may be nil.
	Closing func() []string
	// Ports returns the ports of the services in front of a gateway. The field may be nil.
	Ports func() []ServicePort
}

// TypeStatus is the state of one type of resources on a stream.
type TypeStatus struct {
	Subscribed bool
	// Synced states that the proxy has the newest version of all resources to which it subscribes. The proxy has
	// acknowledged these versions, or has listed them when it reconnected. A refused or withheld newest version does
	// not make Synced false.
	Synced bool
	// Sent and Acked are the opaque nonces of the last response and of the last ACK, as in istiod's pages. They are
	// empty before the first response or ACK.
	Sent, Acked string
	Refused     []Refused
	Withheld    []Withheld
	Warming     *Warming // only for clusters; nil: no cluster is warming
}

// Warming describes clusters that a proxy has not acknowledged yet. Envoy acknowledges or refuses clusters only when
// all of them are warm.
type Warming struct {
	// Since is the time of the oldest unacknowledged response; zero: all responses are acknowledged.
	Since time.Time `json:"since,omitzero"`
	// Clusters lists clusters that may be warming. More is the number of further such clusters.
	Clusters []string `json:"clusters,omitempty"`
	More     int      `json:"more,omitempty"`
	// NotRequested states that the proxy has not requested clusters, because it reconnected while a cluster was
	// warming. Clusters are sent to it nevertheless.
	NotRequested bool `json:"not_requested,omitempty"`
}

// Refused is a version of a resource that the proxy refused.
type Refused struct {
	// Name is empty while it is not known which resource of a response was refused.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Good is the version that the proxy keeps; empty if it accepted no version.
	Good string `json:"last_good_version,omitempty"`
	// Text is the error of the proxy; empty: unknown.
	Text string `json:"error"`
	// Last is the time of the last refusal; zero: unknown.
	Last time.Time `json:"last_refusal,omitzero"`
	// Objects are the objects from which the resource was made, the likeliest cause first.
	Objects []string `json:"objects,omitempty"`
}

// Withheld is a version that this replica does not send to proxies of the stream's view, because several of them have
// refused it. The proxy keeps or receives the last good version. Without a good version, it does not have the resource.
type Withheld struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Good is the version that the proxy has instead; empty: it does not have the resource, or the version is unknown.
	Good string `json:"last_good_version,omitempty"`
	// RefusedBy is the known number of identities that have refused the version. If the version is withheld from one
	// identity only, it is the number of credentials. The number is limited (quarantine.Withheld).
	RefusedBy int       `json:"refused_by"`
	First     time.Time `json:"first_refusal"`
	Last      time.Time `json:"last_refusal"`
	// Text is the error of a proxy that refused the version at this replica. It is empty if the version was refused
	// only at other replicas.
	Text string `json:"error,omitempty"`
	// Objects are the objects from which the resource was made, the likeliest cause first.
	Objects []string `json:"objects,omitempty"`
}

// Problem is one line of /debug/problems.
type Problem struct {
	Object   string           `json:"object"`             // "Kind namespace/name", or another subject such as "cluster NAME"
	Location string           `json:"location,omitempty"` // source of the problem, such as a file or a proxy
	Field    string           `json:"field,omitempty"`    // path of the field
	Code     problem.Code     `json:"code"`
	Analyzer problem.Analyzer `json:"analyzer,omitempty"` // Istio's code, or a code of Navarch, which begins with NAV1; empty: no code
	Severity problem.Severity `json:"severity"`
	Message  string           `json:"message"`
	// Proxies is the number of this process's proxies that refuse a version. For a withheld version it is
	// Withheld.RefusedBy. It is 0 for a problem that is not about a refused version.
	Proxies int `json:"proxies,omitempty"`
	// Related are other objects that may be the cause of the problem.
	Related []string `json:"related,omitempty"`
}

// Config has the sources of the pages. Streams, Snapshot and Problems have to be set. Every function is called by
// several goroutines at a time.
type Config struct {
	// Streams returns at least the streams of the proxies whose name.namespace or node ID is id. For an empty id it
	// returns all streams.
	Streams  func(id string) []Stream
	Snapshot func() *mirror.Snapshot // returns nil before the first snapshot, and always in a process that serves no proxies
	Problems func() []Problem
	Patches  func() []Patch  // nil: this process serves no proxies
	Commits  func() []Commit // oldest first; nil: this process does not write
	// Fleet returns the state of the fleet (all replicas) as this replica sees it. If owners is true, the result has
	// the owner of each shard. The field is nil if the process shows no fleet.
	Fleet func(owners bool) any
	// Leader describes the leader of the ingesters. Errors are those of the store. The field is nil if this process is
	// not a candidate.
	Leader func(context.Context) (Leader, error)
	// Clusters returns the clusters that are read: the config cluster first, then the others. nil: no cluster is read.
	Clusters func() []Cluster
	// Removals returns the removals of objects that the leader holds until somebody accepts them. With a nil field, the
	// page has an empty list.
	Removals func() any
	// Turn waits until a page may be made. The argument ctx is the request's context, and costly states that the page
	// is expensive. Handler calls the function made when the page is ready. It calls the function read when the client
	// has received the page or has disconnected. With an error the request is answered 429. If the field is nil,
	// requests do not wait.
	Turn    func(ctx context.Context, costly bool) (made, read func(), err error)
	ID      string // identifier of this process, as in ControlPlane.Identifier
	Version string // version of this process
}

// page is one page below /debug/.
type page struct {
	path, help string
	serve      func(c Config, r *http.Request) (any, error)
	costly     bool // the page plans, decodes all resources of a proxy, or visits everything that is planned
}

// pages lists the pages.
var pages = []page{
	{"/debug/syncz", "Sent and acknowledged versions of every connected proxy.", syncz, false},
	{"/debug/config_dump", "Resources of one proxy, as Envoy's config_dump (without Envoy's bootstrap and static resources): " +
		"?proxyID=name.namespace, &types=cluster,route.", configDump, true},
	{"/debug/explain", "The objects from which one resource was made, or the state of a Secret: " +
		"?proxyID=name.namespace&resource=NAME.", explain, true},
	{"/debug/connections", "Connected proxies.", connections, false},
	{"/debug/problems", "Problems of objects and files, also of several objects together, and of the control plane.", problems, true},
	{"/debug/patches", "The number of resources that each patch of an EnvoyFilter changes.", patches, true},
	{"/debug/removals", "Removals that the leader holds. POST with ?accept=ID lets one go, at the leader.", removals, false},
	{"/debug/snapshot", "Revision and number of records by kind.", snapshot, false},
	{"/debug/commits", "The newest commits of this process, oldest first: ?record=Kind/namespace/name.", commits, false},
	{"/debug/clusterz", "The clusters that are read, with their Secrets.", clusterz, false},
	{"/debug/registryz", "Services of the mesh, as istiod lists them.", registryz, true},
	{"/debug/configz", "Istio's objects, in their normal form.", configz, true},
	{"/debug/mesh", "The mesh configuration, with its defaults.", mesh, false},
	{"/debug/leader", "The process that leads the ingesters, and the time up to which it has read the cluster.", leader, false},
	{"/debug/fleet", "The replicas, the shards of each, and the proxies of this one; with ?owners=1 the owner of each shard.", fleet, false},
}

// httpError is an error with an HTTP status.
type httpError struct {
	status int
	text   string
}

// Error implements error.
func (e httpError) Error() string { return e.text }

// serveHTTP waits for Config.Turn, and responds with the page as JSON.
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
	_ = page.writeTo(w) // an error means that the client has disconnected
}

// Handler returns a handler of the pages below /debug/, except for /debug/pprof/. A page is JSON, and /debug/list is a
// list of the pages in plain text. An error is answered with its StatusCode and its text. Handler does not check the
// rights of callers.
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

// sorted sorts streams in place by proxy, then by the time of their connection, and returns them.
func sorted(streams []Stream) []Stream {
	slices.SortFunc(streams, func(a, b Stream) int {
		if n := strings.Compare(a.Proxy, b.Proxy); n != 0 {
			return n
		}
		return a.Connected.Compare(b.Connected)
	})
	return streams
}

// streamOf returns the stream of the proxy that a request names by its name.namespace or its node ID. StatusCode of the
// error is 404 or 400.
func streamOf(c Config, r *http.Request) (Stream, error) {
	id := r.URL.Query().Get("proxyID")
	if id == "" {
		return Stream{}, httpError{http.StatusBadRequest, "proxyID is needed: ?proxyID=name.namespace"}
	}
	return streamNamed(c, id)
}

// NotConnected ends the error about a proxy that has no stream at this replica.
const NotConnected = "is not connected to this replica"

// maxCandidates is the maximum number of proxies that an error lists.
const maxCandidates = 8

// streamNamed returns the stream of the proxy whose name.namespace or node ID is id. Of several streams of one node it
// returns the newest. It fails if no node has the name, or if several nodes have it, such as Pods of several clusters.
// The error for several nodes lists their node IDs.
func streamNamed(c Config, id string) (Stream, error) {
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
		return Stream{}, httpError{http.StatusNotFound, fmt.Sprintf("proxy %q %s", id, NotConnected)}
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

// connections serves /debug/connections.
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

// problems serves /debug/problems.
func problems(c Config, _ *http.Request) (any, error) {
	if all := c.Problems(); all != nil {
		return all, nil
	}
	return []Problem{}, nil
}

// removals serves /debug/removals.
func removals(c Config, _ *http.Request) (any, error) {
	if c.Removals == nil {
		return []any{}, nil
	}
	return c.Removals(), nil
}

// snapshot serves /debug/snapshot.
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
