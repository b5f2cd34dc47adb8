// Package debug serves the pages below /debug, and answers istioctl's requests on a stream. Package push/inspect
// renders the pages from the state of this process. A caller sees only what it is authorised to see.
//
// Owns: the order of costly requests; the list of streams that ended lately.
// Reads: the state of streams, planner, mirror and ingester; the rules of cmd/navarchd/debug/authz.
// Never: changes anything; shows one tenant's data to another.
package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/removals"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/join"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// maxCostly is the maximum number of costly pages that this process makes concurrently, over HTTP and streams together.
// maxOfCaller is the maximum number of one caller's pages that wait, are being made, or are not read yet. A page may
// have tens of megabytes.
const (
	maxCostly   = 2
	maxOfCaller = 8
)

// Pages are the pages of one process. Make a Pages with New. Fields for roles that the process does not have are nil,
// and the pages of these roles are empty. The fields must not be changed while pages are served.
type Pages struct {
	ID    string            // name of this process
	Rules *authz.Authorizer // decides what callers may see; required
	// Proxies are the served proxies; nil: the process does not have role xds.
	Proxies *Proxies
	// Previewer plans changes for the proxies; nil: the process does not have role xds.
	Previewer *Previewer
	// Objects are the objects that the ingester has read; nil: the process does not have role ingest.
	Objects *Objects
	// Clusters returns the clusters that are read; nil: the process reads no Kubernetes cluster.
	Clusters func() []inspect.Cluster
	// Removals are the removals of objects that the leader holds back; not nil.
	Removals *removals.Known
	// Acceptor answers POST requests that accept a removal; nil: the process does not have role ingest, and refuses
	// such requests.
	Acceptor *removals.Acceptor
	// Store returns the problems of the store itself and of the process's memory. Only callers who may see the empty
	// namespace get them. nil: there is no store.
	Store func() []inspect.Problem

	turns    *web.Turns
	previews chan struct{} // semaphore of previews that are being made
	// These fields limit requests for previews (PlanBody). bodies limits the requests of each tenant, and of each
	// caller who sees everything. identities limits the requests of each identity of a tenant. room limits the memory
	// of the request bodies.
	bodies, identities *web.Turns
	room               *planRoom
}

// Proxies is the part of a process with role xds. All exported fields are required, except Fleet.
type Proxies struct {
	Server  *serve.Server
	Planner *plan.Loop
	Mirror  *mirror.Mirror
	Cluster string // name of the config cluster
	// Fleet returns the fleet as this replica sees it, as JSON. If owners is true, the result includes the owner of
	// each shard. nil: the fleet is not shown.
	Fleet func(owners bool) any

	left departures
}

// Objects is the part of a process with role ingest. All fields except Commits and Leader are required.
type Objects struct {
	Sources func() []object.Problem                       // problems of the folder and of the cluster themselves
	Loop    func() []object.Problem                       // problems of the objects that the ingester has processed
	Total   func() problem.Count                          // number of problems of these objects, including those that Loop does not list
	Found   *problems.Collector                           // problems that replicas found; empty unless this process leads
	Commits func() []inspect.Commit                       // newest commits of this process, oldest first
	Leader  func(context.Context) (inspect.Leader, error) // describes the leader; errors are those of the store
}

// New returns a copy of p that is ready to serve.
func New(p Pages) *Pages {
	p.turns, p.previews = web.NewTurns(maxCostly, maxOfCaller), make(chan struct{}, 1)
	p.bodies, p.identities, p.room = web.NewTurns(0, maxPlanBodies), web.NewTurns(0, 1), &planRoom{}
	return &p
}

// Handler serves the pages below /debug/, limited to what each caller may see (authz.Authorizer.Guard).
func (p *Pages) Handler() http.Handler { return p.Rules.Guard(p.debug) }

// debug serves the pages for one caller.
func (p *Pages) debug(who authz.Caller) http.Handler {
	pages := inspect.Handler(p.shown(who))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == removals.Path && r.Method == http.MethodPost {
			_, done, err := p.Turn(r.Context(), who, false)
			if err != nil {
				w.Header().Set("Retry-After", "1")
				http.Error(w, err.Error(), http.StatusTooManyRequests)
				return
			}
			defer done()
			proved := who.Sees == nil && (!p.Rules.Open || web.SameMachine(r))
			p.Acceptor.Accept(who.Name, proved, w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// Turn waits until an answer for a caller of the pages may be made. Call the first returned function when the answer is
// complete, and the second when the client has received the answer. With an error, both functions are nil. Errors are
// those of web.Turns.Take.
//
// The answers for one tenant are made one at a time. After each answer there is a pause, which grows with the cost of
// the answer. A tenant may have thousands of proxies, and repeated requests would take the processor from planning and
// sending. A caller who sees everything waits only for costly answers.
func (p *Pages) Turn(ctx context.Context, who authz.Caller, costly bool) (made, read func(), err error) {
	if who.Tenant == "" && !costly {
		return func() {}, func() {}, nil
	}
	turn, err := p.turns.Take(ctx, web.Question{Caller: who.Name, Tenant: who.Tenant, Costly: costly})
	return turn.Made, turn.Done, err
}

// shown returns the content that a caller may see.
func (p *Pages) shown(who authz.Caller) inspect.Config {
	sees := who.Sees
	c := inspect.Config{
		Turn: func(ctx context.Context, costly bool) (made, read func(), err error) {
			return p.Turn(ctx, who, costly)
		},
		ID:       p.ID,
		Version:  obs.Version,
		Streams:  func(string) []inspect.Stream { return nil },
		Snapshot: func() *mirror.Snapshot { return nil },
		Problems: func() []inspect.Problem { return p.Problems(sees) },
		Clusters: p.Clusters,
		Removals: func() any { return p.Removals.Of(sees.Of) },
	}
	if p.Objects != nil {
		c.Commits, c.Leader = p.Objects.Commits, p.Objects.Leader
	}
	if p.Proxies != nil {
		c.Streams, c.Snapshot, c.Fleet = func(id string) []inspect.Stream { return p.Proxies.Streams(sees, id) },
			p.Proxies.Mirror.Current, p.Proxies.Fleet
		c.Patches = func() []inspect.Patch { return p.Patches(sees) }
	}
	return c
}

// Planned implements api.Proxies. The first result is the store's revision that this process has read. The second
// result is the revision up to which the proxies are notified. Both results are 0 before the first snapshot.
func (p *Proxies) Planned() (serves, notified int64) {
	if s := p.Mirror.Current(); s != nil {
		serves = s.Revision()
	}
	return serves, p.Planner.Notified()
}

// Connected implements api.Proxies. It returns the number of streams.
func (p *Proxies) Connected() int { return p.Server.Streams() }

// ConfigCluster implements api.Proxies. It returns the name of the config cluster.
func (p *Proxies) ConfigCluster() string { return p.Cluster }

// Streams returns the visible streams of the proxy with a node id or name.namespace, or of all proxies if id is empty.
// The functions in a stream read the state at the time of their own call.
func (p *Proxies) Streams(sees authz.Visible, id string) []inspect.Stream {
	infos := p.Server.InspectOf(func(node string, v serve.Proxy) bool {
		return sees.Of(v.Namespace()) && (id == "" || id == node || id == nameOf(v))
	})
	all := make([]inspect.Stream, len(infos))
	for i, info := range infos {
		all[i] = p.stream(info)
	}
	return all
}

// nameOf returns name.namespace of a proxy. It is empty if v is not a *join.Proxy.
func nameOf(v serve.Proxy) string {
	if proxy, ok := v.(*join.Proxy); ok {
		return proxy.Node.Name + "." + proxy.Node.Namespace
	}
	return ""
}

// stream describes a stream for the pages.
func (p *Proxies) stream(info serve.StreamInfo) inspect.Stream {
	s := inspect.Stream{
		Node: info.Node, Identity: info.Identity, Address: info.Addr, Connected: info.Opened, Revision: info.Target,
		Proxy: info.Node, Namespace: info.Namespace, Behind: info.Behind,
		Held: func() inspect.Resources {
			held, _ := p.Server.Dump(info.ID) // an ended stream holds nothing
			return held
		},
		Planned: func(t xds.Type, name string) *xds.Resource { return p.planned(info, t, name) },
		Explain: func() (*manifest.Set, inspect.Specs, error) { return p.explain(info) },
		Secret:  func(name string) (inspect.Standing, bool) { return p.standing(info, name) },
		Lacks: func() map[string]string {
			if proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy); ok {
				return p.Planner.Lacking(proxy.Proxy)
			}
			return nil
		},
		Ports: func() (ports []inspect.ServicePort) {
			if proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy); ok {
				for _, port := range p.Planner.ServicePorts(proxy.Proxy) {
					ports = append(ports, inspect.ServicePort(port))
				}
			}
			return ports
		},
		Closing: func() (policies []string) {
			if proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy); ok {
				for _, key := range p.Planner.Closing(proxy.Proxy) {
					policies = append(policies, key.String())
				}
			}
			return policies
		},
	}
	if proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy); ok {
		s.Proxy, s.Cluster, s.Version = nameOf(proxy), cmp.Or(proxy.Node.Cluster, p.Cluster), proxy.Node.Version
		s.Zone, s.Labels = proxy.Node.Locality, proxy.Node.Labels
	}
	for t := range xds.NumTypes {
		i := info.Types[t]
		s.Types[t] = inspect.TypeStatus{Subscribed: i.Subscribed, Synced: i.Synced, Sent: i.Sent, Acked: i.Acked}
	}
	if w := info.Warming; w.NotRequested || !w.Since.IsZero() {
		s.Types[xds.Cluster].Warming = &inspect.Warming{Since: w.Since, Clusters: w.Clusters, More: w.More, NotRequested: w.NotRequested}
	}
	for _, r := range info.Refusals {
		s.Types[r.Type].Refused = append(s.Types[r.Type].Refused,
			inspect.Refused{Name: r.Name, Version: r.Version, Good: r.Good, Text: r.Text, Last: r.At, Objects: Places(r.Objects)})
	}
	for _, w := range info.Withheld {
		s.Types[w.Type].Withheld = append(s.Types[w.Type].Withheld, inspect.Withheld{Name: w.Name, Version: w.Version, Good: w.Good,
			RefusedBy: w.RefusedBy, First: w.First, Last: w.Last, Text: w.Text, Objects: Places(w.Objects)})
	}
	return s
}

// planned returns a resource of the newest planned set of the stream's proxy. It is nil if the set does not have the
// resource, or if the stream has ended.
func (p *Proxies) planned(info serve.StreamInfo, t xds.Type, name string) *xds.Resource {
	proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy)
	if !ok {
		return nil
	}
	return proxy.Set().Types[t].Get(name)
}

// explain returns the newest planned set of the stream's proxy, and a function that finds the Specs (inputs) from which
// a resource was built. The function reads the Specs from the present plan, which is cheaper than planning again. It is
// an error if the stream has ended.
func (p *Proxies) explain(info serve.StreamInfo) (*manifest.Set, inspect.Specs, error) {
	now, ok := p.Server.ProxyOf(info.ID).(*join.Proxy)
	if !ok {
		return nil, nil, errors.New("the stream has ended")
	}
	return now.Set(), func(t xds.Type, name string) []any {
		_, specs := p.Planner.Explain(now.Proxy, t, name)
		return specs
	}, nil
}

// standing returns the state of a Secret for the proxy of one stream, by the present plan. It returns false if the
// stream has ended.
func (p *Proxies) standing(info serve.StreamInfo, name string) (inspect.Standing, bool) {
	proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy)
	if !ok {
		return inspect.Standing{}, false
	}
	s := p.Planner.Standing(proxy.Proxy, name)
	out := inspect.Standing{State: "withheld", Why: s.Why, Wanted: append([]string{}, s.Wanted...)}
	if s.Object != (model.Key{}) {
		out.Object = s.Object.String()
	}
	held, _ := p.Server.Dump(info.ID)
	has := s.Planned != nil && slices.ContainsFunc(held[xds.Secret], func(r *xds.Resource) bool {
		return r.Name == name && r.Version == s.Planned.Version
	})
	refused := slices.IndexFunc(info.Refusals, func(r serve.Refusal) bool { return r.Type == xds.Secret && r.Name == name })
	switch {
	case refused >= 0:
		out.State, out.Why = "refused", info.Refusals[refused].Text
	case s.Asking:
		out.State = "waiting for the authoriser"
	case s.Opening:
		out.State = "being opened"
		if s.Failed > 0 {
			out.Why = fmt.Sprintf("%d attempts, the last: %s", s.Failed, s.Why)
		}
		if has {
			out.Why = strings.TrimPrefix(out.Why+"; the last good one stands", "; ")
		}
	case has:
		out.State = "sent"
	case s.Planned != nil:
		out.State = "on its way"
	case !s.Asked && s.Why == "":
		out.State = "not asked for"
	}
	return out, true
}

// Blame returns the objects from which a refused resource was built, by the present plan. The likeliest cause of the
// refusal comes first. The arguments t and name are the type and the name of the resource of proxy v. The argument text
// is the error of the refusal. If the error names virtual hosts, objects of other virtual hosts are left out
// (inspect.Blame). The result is nil if no objects are known.
func (p *Proxies) Blame(v serve.Proxy, t xds.Type, name, text string) []model.Place {
	proxy, ok := v.(*join.Proxy)
	if !ok {
		return nil
	}
	_, specs := p.Planner.Explain(proxy.Proxy, t, name)
	return inspect.Blame(specs, text)
}

// Places returns a text for each object, for users. It returns nil for an empty list.
func Places(of []model.Place) (out []string) {
	for _, at := range of {
		out = append(out, at.String())
	}
	return out
}

// severity returns Warning for a harmless problem, and otherwise Error.
func severity(harmless bool) problem.Severity {
	if harmless {
		return problem.Warning
	}
	return problem.Error
}

// Named returns the text by which users know an object: its kind, namespace, name and origin. An ID without a name
// stands for a file that does not parse; its text has only the kind and origin.
func Named(id object.ID) string {
	if id.Name == "" {
		return strings.TrimSpace(id.Kind + id.Origin.Suffix())
	}
	return id.String()
}
