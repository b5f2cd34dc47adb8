// Package analyze finds faults in the configuration of a mesh. The configuration is in files, in a cluster, or in a
// cluster some of whose objects are replaced by files. The codes of faults are those of istioctl analyze (IST0101), and
// Navarch's own (NAV1001); see store/problem.
//
// The objects are converted to records, the store's form of objects, by the code of navarchd's leader
// (ingest.RecordsFirst). The conversion finds the same problems as the leader does, in single objects and between
// objects. The checks of this package find faults of objects that have no records: injection, webhooks, Pods and the
// CustomResourceDefinitions of the Gateway API. They also find faults that the leader does not report because they are
// too frequent. Of a report, which has records alone, they find the latter (recorded.go).
//
// For each workload in files (Deployment and others), the analysis adds the Pod and the EndpointSlices that the
// workload would have in a cluster (templates.go), so that selectors and endpoints are compared as in a cluster.
//
// Owns: its checks, the order and the output formats of findings. Reads: objects, from files or an API server.
// Never: changes files or a cluster; reports a fault that depends on a kind that could not be read.
package analyze

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/navarchd/judge"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Finding is one fault of one object.
type Finding struct {
	// Code is Istio's (IST0101) or Navarch's (NAV1001). A problem without such a code has its problem.Code instead.
	Code     string           `json:"code"`
	Severity problem.Severity `json:"severity"`
	Object   string           `json:"object"`          // as object.ID.String: "Kind namespace/name"; empty: unknown
	Field    string           `json:"field,omitempty"` // path, such as spec.http[0].route; empty: the whole object
	Message  string           `json:"message"`
	// Place is the line of the field, or of the closest parent that the file contains. Only Lines.Fill sets it.
	Place
	// Location is the file and the number of the document in it (shop.yaml#2). It is empty for objects of a cluster.
	Location string `json:"-"`
	id       object.ID
}

// Config contains the settings of an analysis.
type Config struct {
	Normal          normal.Options      // settings of the conversion to records
	Routers         view.RouterSettings // settings of the control plane for gateways, but OwnNamespace, which Normal has
	SystemNamespace string              // namespace of the control plane
	Now             time.Time           // time with which the ends of certificates are compared
	Soon            time.Duration       // certificates that end within this time are reported; 0: 30 days
	ProxyBytes      int64               // proxies with more bytes of configuration are reported; 0: their size is not measured
}

// Input is the set of objects to analyse. No function of this package except ReadSecrets changes the slices and maps of
// an Input that it gets.
type Input struct {
	Events   []object.Event   // only with Op Put or Broken; of two with the same ID, the later counts
	Problems []object.Problem // found while the objects were read
	// Unread maps each kind that could not be read (such as Secret) to the reason. Checks that need such a kind are
	// left out.
	Unread map[string]string
	// Cluster contains the kinds that were requested from a cluster, including those in Unread.
	Cluster map[string]bool
	// Reported are the problems that the control plane reports. It is empty without problems, or if the control plane
	// was not queried.
	Reported []Reported
	// Patches are the patches of EnvoyFilters, as all replicas of the control plane count their effect. It is empty if
	// the control plane was not queried, if a replica did not answer, or if no proxy is connected.
	Patches []inspect.Patch
}

// Run returns the findings about the objects, each once, in the order of Compare. It omits findings that an
// annotation of the object suppresses (galley.istio.io/analyze-suppress).
func Run(in Input, c Config) []Finding {
	w := newWorld(in, c)
	for _, check := range checks {
		check(w)
	}
	w.conclude(in.Events)
	for _, check := range last {
		check(w)
	}
	return w.result()
}

// checks are the checks of this package. Each check reads the indexed objects (world) and adds findings. They run while
// the records are compared with each other.
var checks = []func(*world){
	namespaces, pods, autoImages, proxyImages, webhooks, annotations,
	portNames, workloadPorts, inconsistentServices, conditions,
	routers, certificates, portSelectors, uncheckedServers, ingressSubsets, claims, relativePatches,
	gatewaySelectors, registries, definitions, unprovidedLogs, keyServers, closedPolicies, imports, authorities, reports,
	strictServers, unreadyServices, idleImports, patchedImports, multipliers, overBudget, writers, renewals,
	planProxies,
}

// last are checks that read the findings of the conversion, and run after it.
var last = []func(*world){planned, unselectedRouters, patches}

// newWorld indexes the objects and converts them to records. The problems of the conversion are in world.converted.
func newWorld(in Input, c Config) *world {
	w := index(in, c)
	var records []model.Record
	records, w.refused, w.converted = ingest.RecordsFirst(slices.Concat(in.Events, w.made), c.Normal)
	w.setRecords(records)
	for _, p := range in.Problems {
		w.problem(p)
	}
	known, unresolved := resolve.Snapshot(mirror.Empty().Apply(1, records, nil).New)
	for _, p := range unresolved {
		w.problem(object.Problem{ID: normal.SourceObject(p.Key), Field: p.Field, Code: p.Code, Analyzer: p.Analyzer, Severity: p.Severity,
			Message: p.Full()})
	}
	w.judge(known)
	w.known = known
	return w
}

// conclude adds the findings of the conversion to records, once they are known, and those of the objects' CRDs.
func (w *world) conclude(events []object.Event) {
	for _, p := range w.converted() {
		if slices.Contains(w.refused[p.ID], p) && ofIstio(p.ID) {
			p.Severity, p.Analyzer = problem.Error, problem.SchemaValidationError // the webhook refuses the object
		}
		w.problem(p)
	}
	w.violations(events)
}

// judge adds the findings of the checks that need types of Envoy: CUSTOM policies whose provider cannot be queried, and
// values of EnvoyFilters that Envoy's messages do not have. Without the mesh configuration the providers are unknown.
func (w *world) judge(known *mirror.Snapshot) {
	id := normal.New(w.Normal).MeshID()
	if w.byID[w.id(id.Group, id.Kind, id.Namespace, id.Name)] == nil {
		known = nil
	}
	for _, kind := range []model.Kind{model.KindAuthorizationPolicy, model.KindEnvoyFilter} {
		for r := range each[model.Record](w, kind) {
			refused, warned := judge.Record(r, known)
			if kind == model.KindEnvoyFilter {
				warned = nil // the conversion to records and other checks report these warnings
			}
			for _, err := range slices.Concat(refused, warned) {
				p := model.ProblemOf(err, r.Meta().Key)
				w.problem(object.Problem{ID: normal.SourceObject(p.Key), Field: p.Field, Code: p.Code, Analyzer: p.Analyzer,
					Severity: p.Severity, Message: p.Full()})
			}
		}
	}
}

// problem adds the finding for a problem of the conversion to records. If the analysis added a Pod for a workload,
// the Pod's problems become findings about the workload's template.
func (w *world) problem(p object.Problem) {
	if owner, is := w.stands[p.ID]; is {
		if owner.ID.Name == "" {
			return // an added EndpointSlice
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

// uninhabited reports whether a problem is about a selector that matches no workload, in a namespace without any
// analysed workload. While no Pods are read from a cluster, such a problem is not a finding, because the workloads may
// be in files that are not analysed.
func (w *world) uninhabited(p object.Problem) bool {
	ofSelector := p.Code == problem.NoEffect &&
		(p.Analyzer == problem.NoMatchingWorkloadsFound || p.Analyzer == problem.ReferencedResourceNotFound)
	return ofSelector && p.ID.Kind != "Gateway" && !w.live("Pod") && !w.inhabited[p.ID.Namespace]
}

// add adds a finding for a problem. If code is empty, the problem's Code is the finding's code. The severity is the
// code's, or else the problem's.
func (w *world) add(p object.Problem, code problem.Analyzer) {
	f := Finding{Code: string(code), Severity: cmp.Or(code.Severity(), p.Severity), Field: p.Field, Message: p.Full(), Location: p.Location,
		id: p.ID}
	if f.Code == "" {
		f.Code = string(p.Code)
	}
	if f.Object = p.ID.String(); p.ID == (object.ID{}) {
		f.Object = ""
	}
	w.findings = append(w.findings, f)
}

// Compare orders findings by severity (the most severe first), then namespace, object, field, code, message and
// location. It returns a negative number, 0 or a positive number, as cmp.Compare.
func Compare(a, b Finding) int {
	return cmp.Or(cmp.Compare(rank(b.Severity), rank(a.Severity)), cmp.Compare(a.id.Namespace, b.id.Namespace), cmp.Compare(a.Object,
		b.Object),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Location, b.Location))
}

// rank returns 0, 1 and 2 for Info, Warning and Error, and -1 for other severities.
func rank(s problem.Severity) int {
	return slices.Index([]problem.Severity{problem.Info, problem.Warning, problem.Error}, s)
}

// AtLeast reports whether the severity s equals the threshold or is more severe. An unknown severity is below Info.
func AtLeast(s, threshold problem.Severity) bool { return rank(s) >= rank(threshold) }

// result returns the findings that no annotation suppresses, sorted, each once.
func (w *world) result() []Finding {
	all := slices.DeleteFunc(w.findings, w.suppressed)
	slices.SortFunc(all, Compare)
	return slices.Compact(all)
}

// New compares two lists of findings, and returns the findings that only the second list has, in its order. Differences
// of Location and of list indexes in Field are ignored. Equal findings are counted: if the first list has a finding
// once and the second list has it twice, New returns it once. Call New before Lines.Fill, because differences of Place
// are not ignored. New does not change its arguments.
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

// withoutIndexes returns a path of fields without the digits in brackets: spec.http[0] becomes spec.http[].
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
