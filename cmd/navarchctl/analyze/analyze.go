// Package analyze finds what is wrong with the configuration of a mesh, in files, in a cluster, or in files that are
// about to be applied to a cluster. Its codes are those of istioctl analyze, and own ones (store/problem).
//
// The objects run through the leader's pipeline (ingest.Records), so findings about single objects and between records
// are those of the leader. The checks of this package add what records do not contain: injection, webhooks, Pods, the
// definitions of the Gateway API, and codes that would be noise at a leader.
//
// Workloads of files (Deployments and others) are replaced by Pods and EndpointSlices that they would have
// (templates.go), so that selectors and endpoints are compared as in a cluster.
//
// Owns: the checks beside records, the order and the forms of findings.
// Reads: objects, from files or an API server.
// Never: writes; reports about an object what an unread kind would decide.
package analyze

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Finding is one fault of one object.
type Finding struct {
	// Code is Istio's, or begins with NAV; without such a code it is a problem.Code.
	Code     string           `json:"code"`
	Severity problem.Severity `json:"severity"`
	Object   string           `json:"object"` // "Kind namespace/name"; empty: unknown
	Field    string           `json:"field,omitempty"`
	Message  string           `json:"message"`
	// Place is the line of the field, or of the closest part of the object that is in the file. It is set by Lines.
	Place
	// Location is the file and the number of the document in it (shop.yaml#2); empty for objects of a cluster.
	Location string `json:"-"`
	id       object.ID
}

// Config selects the pipeline's settings.
type Config struct {
	Normal          normal.Options
	SystemNamespace string // of the control plane
	Now             time.Time
	Soon            time.Duration // before the end of a certificate, from which on it is reported; 0: 30 days
}

// Input is a set of objects.
type Input struct {
	Events   []object.Event   // Put and Broken
	Problems []object.Problem // of reading
	// Unread lists the kinds that may exist and were not read, by kind, with the reason. Checks that need one of them
	// are left out.
	Unread map[string]string
	// Cluster lists the kinds of which a cluster was read.
	Cluster map[string]bool
	// Reported are the problems that the control plane reports; nil: it was not asked.
	Reported []Reported
}

// Run returns all findings about the objects, in order of severity, object, field and message.
func Run(in Input, c Config) []Finding {
	w := newWorld(in, c)
	for _, check := range checks {
		check(w)
	}
	return w.result()
}

// checks are the checks of this package. Each reads the world and adds findings.
var checks = []func(*world){
	namespaces, pods, autoImages, proxyImages, webhooks, annotations,
	portNames, workloadPorts, inconsistentServices, conditions,
	routers, certificates, portSelectors, uncheckedServers, ingressSubsets, claims, relativePatches,
	gatewaySelectors, registries, definitions, unprovidedLogs, keyServers, closedPolicies, imports, authorities, reports,
}

// newWorld runs the pipeline over the objects.
func newWorld(in Input, c Config) *world {
	w := index(in, c)
	records, more := ingest.Records(slices.Concat(in.Events, w.made), c.Normal)
	w.setRecords(records)
	for _, p := range slices.Concat(in.Problems, more) {
		w.problem(p)
	}
	_, unresolved := resolve.Snapshot(mirror.Empty().Apply(1, records, nil).New)
	for _, p := range unresolved {
		w.problem(object.Problem{ID: normal.SourceObject(p.Key), Field: p.Field, Code: p.Code, Analyzer: p.Analyzer, Severity: p.Severity,
			Message: p.Message})
	}
	return w
}

// problem adds a problem of the pipeline. Problems of a Pod that stands for a workload are the workload's.
func (w *world) problem(p object.Problem) {
	if owner, is := w.stands[p.ID]; is {
		if owner.ID.Name == "" {
			return // endpoints
		}
		p.ID, p.Location, p.Field = owner.ID, owner.Location, inTemplate(owner, p.Field)
	}
	if w.uninhabited(p) {
		return
	}
	if p.Location == "" {
		p.Location = w.location(p.ID)
	}
	w.add(p, cmp.Or(p.Analyzer, schemaCode(p)))
}

// uninhabited reports whether a problem is that of a selector, in a namespace of files that have no workload of it: the
// workloads may be elsewhere.
func (w *world) uninhabited(p object.Problem) bool {
	ofSelector := p.Code == problem.NoEffect &&
		(p.Analyzer == problem.NoMatchingWorkloadsFound || p.Analyzer == problem.ReferencedResourceNotFound)
	return ofSelector && p.ID.Kind != "Gateway" && !w.live("Pod") && !w.inhabited[p.ID.Namespace]
}

// add adds a finding with a code; empty: the problem's own. Its severity is the code's.
func (w *world) add(p object.Problem, code problem.Analyzer) {
	f := Finding{Code: string(code), Severity: cmp.Or(code.Severity(), p.Severity), Field: p.Field, Message: p.Message, Location: p.Location,
		id: p.ID}
	if f.Code == "" {
		f.Code = string(p.Code)
	}
	if f.Object = p.ID.String(); p.ID == (object.ID{}) {
		f.Object = ""
	}
	w.findings = append(w.findings, f)
}

// Compare orders findings by severity, then object, field, code and message.
func Compare(a, b Finding) int {
	return cmp.Or(cmp.Compare(rank(b.Severity), rank(a.Severity)), cmp.Compare(a.id.Namespace, b.id.Namespace), cmp.Compare(a.Object,
		b.Object),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Location, b.Location))
}

// rank orders severities.
func rank(s problem.Severity) int {
	return slices.Index([]problem.Severity{problem.Info, problem.Warning, problem.Error}, s)
}

// AtLeast reports whether a severity is at or above a threshold.
func AtLeast(s, threshold problem.Severity) bool { return rank(s) >= rank(threshold) }

// result returns the findings that no annotation suppresses, sorted, each once.
func (w *world) result() []Finding {
	all := slices.DeleteFunc(w.findings, w.suppressed)
	slices.SortFunc(all, Compare)
	return slices.Compact(all)
}

// New returns the findings that a second analysis has in addition to a first one. The location of an object, and
// findings of it that have moved to another field of a list, do not count.
func New(before, after []Finding) []Finding {
	key := func(f Finding) Finding {
		f.Location, f.Field = "", withoutIndexes(f.Field)
		return f
	}
	had := map[Finding]int{}
	for _, f := range before {
		had[key(f)]++
	}
	var all []Finding
	for _, f := range after {
		if k := key(f); had[k] > 0 {
			had[k]--
		} else {
			all = append(all, f)
		}
	}
	return all
}

// withoutIndexes returns a path of fields without the numbers of its elements.
func withoutIndexes(field string) string {
	var out strings.Builder
	inside := false
	for _, r := range field {
		switch {
		case r == '[':
			inside = true
		case r == ']':
			inside = false
		case inside && r >= '0' && r <= '9':
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// sorted returns the keys of a map, in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
