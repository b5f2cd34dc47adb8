package mesh

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/xds"
)

// Expect is what an edit should bring to some proxies.
type Expect struct {
	Type       xds.Type
	Names      []string // of resources whose content changes; sorted
	Removed    bool     // the resources go instead
	Namespaces []string // whose proxies; nil: all
	Workload   string   // and of those only this workload's; empty: all
	// Marker is text in the new content that was not in it before; empty: any other version is the new one.
	Marker string
}

// Edit is one change of a folder, made and not yet done: who measures it sets up first.
type Edit struct {
	What   string
	Expect []Expect // nothing but this should change anywhere
	// Gone and Come are the pods that a deploy replaced: proxies that leave and join with it.
	Gone, Come []Workload
	// Record is what a change of readiness writes, as the page of commits names it: kind/namespace/name; empty: not known.
	Record string

	put   func([]file) (time.Time, error)
	files []file
}

// Files are the paths that the edit replaces, relative with slashes.
func (e Edit) Files() []string {
	paths := make([]string, len(e.files))
	for i, f := range e.files {
		paths[i] = f.path
	}
	return paths
}

// Apply does the edit, and returns when the first file was in its place. The error is that of the folder, or of what By was given; some of the
// files may be in their places all the same.
func (e Edit) Apply() (time.Time, error) {
	at, err := e.put(e.files)
	if err != nil {
		err = fmt.Errorf("%s: %w", e.What, err)
	}
	return at, err
}

// Churn makes edits of a folder that Mesh.Write has written. It remembers what they come to: they are to be applied in
// the order in which they were made. It is for one goroutine.
type Churn struct {
	mesh     *Mesh
	dir      string
	states   map[*service]*state
	narrowed map[*namespace]bool
	rolled   int                                                // pods made by rolling deploys
	by       func(iter.Seq2[string, []byte]) (time.Time, error) // nil: into the folder
}

// By has edits written by somebody else than the folder: path and content of each file, in order; it returns when the first was there.
func (c *Churn) By(put func(files iter.Seq2[string, []byte]) (time.Time, error)) { c.by = put }

func (c *Churn) put(files []file) (time.Time, error) {
	if c.by == nil {
		return put(c.dir, files)
	}
	return c.by(func(yield func(string, []byte) bool) {
		for _, f := range files {
			if !yield(f.path, f.data) {
				return
			}
		}
	})
}

// NewChurn starts with the folder as written.
func NewChurn(w *Mesh, dir string) *Churn {
	return &Churn{mesh: w, dir: dir, states: map[*service]*state{}, narrowed: map[*namespace]bool{}}
}

func (c *Churn) of(k int) (*service, *state) {
	s := c.mesh.services[k%len(c.mesh.services)]
	if c.states[s] == nil {
		st := s.pristine()
		st.pods, st.unready = slices.Clone(st.pods), map[int]bool{}
		c.states[s] = &st
	}
	return s, c.states[s]
}

func (c *Churn) seers(s *service) []string { return c.mesh.seers(s.space.name, c.narrowed) }

// endpoints is the file that lists a service's endpoints.
func (c *Churn) endpoints(s *service, st *state) file {
	if c.mesh.Settings.Form == Istio {
		return s.entry(*st)
	}
	return s.slice(*st)
}

func assignments(names []string, who []string) []Expect {
	slices.Sort(names)
	return []Expect{{Type: xds.Endpoint, Names: names, Namespaces: who}}
}

// ToggleReadiness takes readiness from the last pod of the k-th service that all of its clients have, or gives it back.
func (c *Churn) ToggleReadiness(k int) Edit {
	s, st := c.of(k)
	last := st.shared(s.rule)
	st.unready[last] = !st.unready[last]
	e := Edit{What: "endpoint edit of " + s.host(), put: c.put, files: []file{c.endpoints(s, st)},
		Expect: assignments(s.clusters(st.pods[last].version), c.seers(s))}
	if c.mesh.Settings.Form != Istio {
		e.Record = "Endpoints/" + s.space.name + "/" + s.name + "-slice"
	}
	return e
}

// shared is the last pod that all clients have: where requests are distributed by zones, clients of zone-0 have nothing of those that the rule does not
// name. The last pod, where there is none.
func (st *state) shared(rule ruleKind) int {
	for i, p := range slices.Backward(st.pods) {
		if rule != distribute || p.zone == zoneName(0) || p.zone == zoneName(1) {
			return i
		}
	}
	return len(st.pods) - 1
}

// maxPort is how far Port goes before it begins again.
const maxPort = 50000

// Port has the pods of the k-th service listen on the next port: a small change of endpoints whose contents do not come
// back, as those of ToggleReadiness do, so that however many of them a server leaves out, no version goes back.
func (c *Churn) Port(k int) Edit {
	s, st := c.of(k)
	st.port = (st.port + 1) % maxPort
	names := []string{}
	for _, name := range s.clusters("v1", "v2") {
		if strings.HasPrefix(name, fmt.Sprintf("outbound|%d|", httpPort)) {
			names = append(names, name)
		}
	}
	return Edit{What: "port of the endpoints of " + s.host(), put: c.put, files: []file{c.endpoints(s, st)}, Expect: assignments(names, c.seers(s))}
}

// VirtualServices gives each of these services the next edition of its VirtualService (its first, where it has none), in
// one change of one folder.
func (c *Churn) VirtualServices(ks ...int) Edit {
	e := Edit{What: fmt.Sprintf("%d VirtualServices", len(ks)), put: c.put}
	for _, k := range ks {
		s, st := c.of(k)
		st.edition++
		e.files = append(e.files, s.virtualService(*st))
		e.Expect = append(e.Expect, Expect{Type: xds.Route, Names: []string{fmt.Sprint(httpPort)}, Namespaces: c.seers(s), Marker: s.marker(*st)})
	}
	return e
}

// Tune gives the k-th service the next edition of its DestinationRule; false: it has none.
func (c *Churn) Tune(k int) (Edit, bool) {
	s, st := c.of(k)
	if s.rule == noRule {
		return Edit{}, false
	}
	st.tuned++
	names := s.clusters("v1", "v2")
	slices.Sort(names)
	return Edit{What: "DestinationRule of " + s.host(), put: c.put, files: []file{s.destinationRule(*st)},
		Expect: []Expect{{Type: xds.Cluster, Names: names, Namespaces: c.seers(s)}}}, true
}

// Roll replaces the pods of the k-th service, one in each edit: a rolling deploy.
func (c *Churn) Roll(k int) []Edit {
	s, st := c.of(k)
	var edits []Edit
	labels := map[string]map[string]string{}
	for i, old := range st.pods {
		c.rolled++
		fresh := old
		fresh.name = fmt.Sprintf("%s-%05x-%05x", s.name, c.rolled, i)
		fresh.address = nth(rolledNet, c.rolled)
		st.pods[i] = fresh
		delete(st.unready, i)
		e := Edit{What: fmt.Sprintf("deploy of %s, pod %d of %d", s.host(), i+1, len(st.pods)), put: c.put,
			Gone: []Workload{s.workload(old, labels)}, Come: []Workload{s.workload(fresh, labels)},
			Expect: assignments(s.clusters(old.version), c.seers(s))}
		if c.mesh.Settings.Form != Istio {
			e.files = append(e.files, s.podsFile(*st)) // the Pod is there before its endpoint
		}
		e.files = append(e.files, c.endpoints(s, st))
		edits = append(edits, e)
	}
	return edits
}

// Sidecar narrows the Sidecar of a namespace to its own services, or widens it again. An error: the namespace has none.
func (c *Churn) Sidecar(name string) (Edit, error) {
	i := slices.IndexFunc(c.mesh.spaces, func(n *namespace) bool { return n.name == name && n.sidecar })
	if i < 0 {
		return Edit{}, fmt.Errorf("namespace %s has no Sidecar", name)
	}
	space := c.mesh.spaces[i]
	c.narrowed[space] = !c.narrowed[space]
	var names []string
	for _, other := range space.sees {
		for _, s := range other.services {
			names = append(names, s.clusters("v1", "v2")...)
		}
	}
	slices.Sort(names)
	who := []string{name}
	e := Edit{What: "Sidecar of " + name, put: c.put, files: []file{space.sidecarFile(c.narrowed[space])},
		Expect: []Expect{{Type: xds.Cluster, Names: names, Removed: c.narrowed[space], Namespaces: who}}}
	e.Expect = append(e.Expect, Expect{Type: xds.Route, Names: []string{fmt.Sprint(httpPort)}, Namespaces: who})
	return e, nil
}

// Policy gives the k-th service the next edition of its AuthorizationPolicy, or its first.
func (c *Churn) Policy(k int) Edit {
	s, st := c.of(k)
	st.policy++
	return Edit{What: "AuthorizationPolicy of " + s.host(), put: c.put, files: []file{s.authorization(*st)},
		Expect: []Expect{{Type: xds.Listener, Names: []string{xds.VirtualInbound}, Namespaces: []string{s.space.name}, Workload: s.name}}}
}
