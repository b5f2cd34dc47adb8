// Package telemetry decides which access logs, spans and metrics the listeners of a proxy report, for one direction of it: it combines the
// providers of the mesh configuration with the Telemetries that apply to the proxy.
//
// Owns: nothing.  Reads: plan/input, plan/host for what is visible.  Never: Envoy's protobuf.
//
// At most three Telemetries apply to a proxy, each taking precedence over the ones before: the oldest of the root namespace and the oldest of
// its own namespace that have no selector, and the oldest of its own namespace whose selector picks it
// (https://istio.io/latest/docs/reference/config/telemetry/; istio: pilot/pkg/model/telemetry.go, applicableTelemetries).
//
// Telemetries without a selector are no part of a view. Fronts and workloads look up those of their namespace and of
// the root namespace. An edit of one is decided again for the scopes of its namespace, and only listeners whose
// reports differ are planned again. Telemetries with a selector, and the name of a proxy in its spans (view.Self:
// canonical service and node.cluster), are inputs of the view. So listeners split by workload only where spans are
// sent.
//
// istiod sends a tracing block with these names to each connection manager of any mesh. Without a provider Envoy makes
// no spans of it ("If not specified, no tracing will be performed", HttpConnectionManager.Tracing.provider), unless
// its bootstrap has a tracer. So Navarch leaves the block out unless a provider or defaultConfig.tracing is named.
package telemetry

import (
	"cmp"
	"fmt"
	"slices"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	build "navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Proxy is what is asked about: one direction of proxies that are alike.
type Proxy struct {
	host.Visibility
	Client    bool      // its outbound side
	Telemetry model.Key // that selects it; zero: none
	Self      view.Self
	Caps      xds.Caps
}

// Reports is what its listeners report.
type Reports struct {
	Spec build.Spec
	// Hosts are those of the providers: where a service of one of them comes, goes or has other ports, it is to be decided again.
	Hosts    []string
	Problems []input.Problem
}

// Interned lists of Specs; weak, so nothing is held that no Spec holds.
var (
	logs      intern.Table[build.Log]
	tags      intern.Table[build.Tag]
	overrides intern.Table[build.Override]
	keys      intern.Table[model.Key]
)

// Of decides what a proxy's listeners report.
func Of(in *input.Input, p Proxy) Reports {
	mesh, all := in.Mesh.Spec, For(in, p.Namespace, p.Telemetry)
	defaults := mesh.GetDefaultProviders()
	d := &decision{Input: in, Proxy: p}
	if len(all) == 0 && len(defaults.GetAccessLogging()) == 0 && !p.Self.Sends {
		d.out.Spec.Tracing = d.sampled()
		return d.out
	}
	var counted, traced []model.Key
	for _, t := range all {
		if len(t.Spec.GetAccessLogging())+len(t.Spec.GetMetrics()) > 0 {
			counted = append(counted, t.Key)
		}
		if len(t.Spec.GetTracing()) > 0 {
			traced = append(traced, t.Key)
		}
	}
	d.out.Spec.By = keys.List(counted...)
	d.out.Spec.Logs = d.logs(all)
	d.out.Spec.Metrics = d.metrics(all)
	d.out.Spec.Tracing = d.tracing(all)
	if p.Self.Sends {
		d.out.Spec.Tracing.By = keys.List(traced...)
	}
	return d.out
}

// For are the Telemetries that are for proxies of a namespace, which one of them selects (zero: none does): what a later one says goes before
// what the others say.
func For(in *input.Input, namespace string, selecting model.Key) (all []*model.Telemetry) {
	namespaces := []string{in.Root(), namespace}
	if in.Root() == namespace {
		namespaces = namespaces[:1]
	}
	for _, of := range namespaces {
		var first *model.Telemetry
		for r := range in.In(model.KindTelemetry, of) {
			t := r.(*model.Telemetry)
			if len(t.Spec.GetSelector().GetMatchLabels()) == 0 && (first == nil || t.Older(&first.Head) < 0) {
				first = t
			}
		}
		if first != nil {
			all = append(all, first)
		}
	}
	if r, ok := in.Get(selecting); ok {
		all = append(all, r.(*model.Telemetry))
	}
	return all
}

// decision is on its way to Reports.
type decision struct {
	*input.Input
	Proxy
	out Reports
}

// place is where a provider is named.
type place struct {
	key   model.Key
	field string
}

func (d *decision) warn(at place, code problem.Code, format string, args ...any) {
	d.out.Problems = append(d.out.Problems, input.Warning(at.key, code, at.field, fmt.Sprintf(format, args...)))
}

func (d *decision) notFound(at place, format string, args ...any) {
	d.out.Problems = append(d.out.Problems, input.NotFound(at.key, at.field, fmt.Sprintf(format, args...)))
}

// applies says whether an entry with this mode is for the direction.
func (d *decision) applies(mode telemetryv1.WorkloadMode) bool {
	switch mode {
	case telemetryv1.WorkloadMode_CLIENT:
		return d.Client
	case telemetryv1.WorkloadMode_SERVER:
		return !d.Client
	case telemetryv1.WorkloadMode_CLIENT_AND_SERVER:
	}
	return true
}

// service finds the service of a provider. False: it is not known, or the proxy has no cluster of it; the problem is reported.
func (d *decision) service(name string, of build.Address, at place) (build.Service, bool) {
	host, found, namespaces := d.ProviderServices(of.Service)
	host, asked, there := d.Find(d.Input, host, found, of.Port)
	for _, h := range asked {
		if !slices.Contains(d.out.Hosts, h) {
			d.out.Hosts = append(d.out.Hosts, h)
		}
	}
	switch {
	case namespaces == 0:
		d.notFound(at, "provider %s: no service has host %q: nothing is sent to it", name, of.Service)
	case namespaces > 1:
		d.warn(at, problem.Invalid, "provider %s: several namespaces have host %q: write NAMESPACE/HOST; nothing is sent to it", name, of.Service)
	case !there:
		d.notFound(at, "provider %s: proxies of namespace %s have no cluster of a service with host %q and port %d: nothing is sent to it", name, d.Namespace, of.Service, of.Port)
	default:
		return build.Service{Host: host, Cluster: xds.OutboundCluster(of.Port, "", host)}, true
	}
	return build.Service{}, false
}

// namesOf are the names of providers.
func namesOf(refs []*telemetryv1.ProviderRef) (names []string) {
	for _, ref := range refs {
		names = append(names, ref.GetName())
	}
	return names
}

// byName orders tags.
func byName(a, b build.Tag) int { return cmp.Compare(a.Name, b.Name) }
