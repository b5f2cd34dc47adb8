package mesh

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/xds"
)

// Expect describes the expected effect of an edit on some proxies.
type Expect struct {
	Type       xds.Type
	Names      []string // names of resources whose content changes; sorted
	Removed    bool     // the resources are removed instead
	Namespaces []string // namespaces of these proxies; nil: all
	Workload   string   // only proxies of this workload; empty: all
	// Marker is a text that only the new content contains; empty: any other version is the new one.
	Marker string
}

// Edit is one prepared change of a folder. It is applied later, so that a measurement can be set up first.
type Edit struct {
	What   string
	Expect []Expect // all expected changes; any other change is an error
	// Gone and Come are the Pods that a deploy removes and adds; their proxies leave and join.
	Gone, Come []Workload
	// Record is the record that a change of readiness writes, kind/namespace/name as on the page of commits; empty:
	// unknown.
	Record string

	put   func([]file) (time.Time, error)
	files []file
}

// Files returns the paths that the edit replaces, relative, with slashes.
func (e Edit) Files() []string {
	paths := make([]string, len(e.files))
	for i, f := range e.files {
		paths[i] = f.path
	}
	return paths
}

// Contents returns the contents of these files, as YAML.
func (e Edit) Contents() [][]byte {
	contents := make([][]byte, len(e.files))
	for i, f := range e.files {
		contents[i] = f.data
	}
	return contents
}

// Apply makes the change, and returns the time at which the first file was in place. The error is that of the folder,
// or of the function given to By; some files may be written then.
func (e Edit) Apply() (time.Time, error) {
	at, err := e.put(e.files)
	if err != nil {
		err = fmt.Errorf("%s: %w", e.What, err)
	}
	return at, err
}

// Churn prepares edits of a folder that Mesh.Write has written. It keeps the resulting state, so edits must be applied
// in the order of their preparation. One goroutine may use it.
type Churn struct {
	mesh     *Mesh
	dir      string
	states   map[*service]*state
	narrowed map[*namespace]bool
	routes   map[int]int                                        // edition of each edited route
	rolled   int                                                // number of Pods that rolling deploys have made
	by       func(iter.Seq2[string, []byte]) (time.Time, error) // nil: edits are written to the folder
}

// By replaces the folder as the target of edits: put receives path and content of each file in order, and returns the
// time at which the first was written.
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

// NewChurn returns a Churn for a folder as Write has written it.
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

// endpoints returns the file with a service's endpoints.
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

// ToggleReadiness makes the last common Pod of the k-th service not ready, or ready again.
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

// shared returns the index of the last Pod that all clients have as endpoint. With a rule that distributes by zones,
// clients of zone-0 have only endpoints of zones in the rule. Without such a Pod it is the last Pod.
func (st *state) shared(rule ruleKind) int {
	for i, p := range slices.Backward(st.pods) {
		if rule != distribute || p.zone == zoneName(0) || p.zone == zoneName(1) {
			return i
		}
	}
	return len(st.pods) - 1
}

// maxPort is the number of ports after which Port starts again.
const maxPort = 50000

// Port makes the Pods of the k-th service listen on the next port. This is a small change of endpoints that never
// restores an earlier content, unlike ToggleReadiness: however many changes a server skips, no version reappears.
func (c *Churn) Port(k int) Edit {
	s, st := c.of(k)
	st.port = (st.port + 1) % maxPort
	names := []string{}
	for _, name := range s.clusters("v1", "v2") {
		if strings.HasPrefix(name, fmt.Sprintf("outbound|%d|", httpPort)) {
			names = append(names, name)
		}
	}
	return Edit{What: "port of the endpoints of " + s.host(),
		put: c.put, files: []file{c.endpoints(s, st)}, Expect: assignments(names, c.seers(s))}
}

// VirtualServices changes the VirtualService of each of these services to the next edition, or creates it, in one edit.
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

// Tune changes the DestinationRule of the k-th service to its next edition; false: the service has no rule.
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

// Roll returns the edits of a rolling deploy of the k-th service, each of which replaces one Pod.
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
			e.files = append(e.files, s.podsFile(*st)) // the Pod exists before its endpoint
		}
		e.files = append(e.files, c.endpoints(s, st))
		edits = append(edits, e)
	}
	return edits
}

// Sidecar narrows the Sidecar of a namespace to its own services, or widens it again. The error reports that the
// namespace has no Sidecar.
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

// Policy changes the AuthorizationPolicy of the k-th service to its next edition, or creates it.
func (c *Churn) Policy(k int) Edit {
	s, st := c.of(k)
	st.policy++
	return Edit{What: "AuthorizationPolicy of " + s.host(), put: c.put, files: []file{s.authorization(*st)},
		Expect: []Expect{{Type: xds.Listener, Names: []string{xds.VirtualInbound}, Namespaces: []string{s.space.name}, Workload: s.name}}}
}
