// Package telemetry decides the access logs, spans and metrics of a proxy's listeners, for one direction (outbound or
// inbound). It combines the providers of the mesh configuration with the Telemetries that apply to the proxy. The
// result is a part of the listeners' Specs. A Spec is the input from which a resource is built.
//
// Owns: nothing. Reads: the planner's input (plan/input), and the visible services (plan/host). Never: builds Envoy's
// messages.
//
// At most three Telemetries apply to a proxy (https://istio.io/latest/docs/reference/config/telemetry/; istio:
// pilot/pkg/model/telemetry.go, applicableTelemetries). In ascending precedence these are:
//   - the oldest Telemetry of the root namespace without a selector
//   - the oldest Telemetry of the proxy's namespace without a selector
//   - the oldest Telemetry of the proxy's namespace whose selector matches
//
// The view of a proxy (the key of proxies with equal configuration) names the Telemetry whose selector matches. The
// function For finds the Telemetries without a selector by their namespace. After an edit of a Telemetry without a
// selector, Of is called again for its namespace. Listeners are planned again only if their telemetry differs. If a
// proxy sends spans, its view also contains its description in spans (view.Self). Workloads that send no spans can
// therefore share listeners.
//
// istiod puts a tracing block with the proxy's description into each connection manager. Without a provider Envoy sends
// no spans ("If not specified, no tracing will be performed", HttpConnectionManager.Tracing.provider), unless Envoy's
// bootstrap has a tracer. Navarch omits the description unless the proxy is known to send spans.
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

// Proxy describes one direction of proxies that get the same telemetry.
type Proxy struct {
	host.Visibility           // the namespace, and the clusters to which telemetry can be sent
	Client          bool      // true: the outbound side; false: the inbound side
	Telemetry       model.Key // the Telemetry whose selector matches; zero without such a Telemetry
	Self            view.Self // the proxies' description in spans; zero: the proxies send no spans
	Caps            xds.Caps  // the capabilities that all of the proxies have
}

// Reports contains the telemetry of a proxy's listeners, the result of Of.
type Reports struct {
	Spec build.Spec // the telemetry in the listeners' Specs
	// Hosts lists the hosts on which the providers depend, each once, in no particular order. When a service of such a
	// host appears, disappears or changes its ports, the caller must call Of again.
	Hosts    []string
	Problems []input.Problem // settings of Telemetries and of the mesh that have no effect
}

// Interned lists of Specs. The tables are weak: a list is freed when no Spec refers to it.
var (
	logs      intern.Table[build.Log]
	tags      intern.Table[build.Tag]
	overrides intern.Table[build.Override]
	keys      intern.Table[model.Key]
)

// Of returns the telemetry of a proxy's listeners. The mesh configuration and the Telemetries that For returns decide
// it. Of leaves out settings that cannot be applied, and reports most of them in Reports.Problems. It does not report
// names of unknown providers, because store/normal reports them. Of does not change its arguments.
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

// For returns the Telemetries that apply to proxies of a namespace, in ascending precedence, at most three. The
// parameter selecting is the key of the Telemetry whose selector matches the proxies. It is ignored if it is zero or if
// the Telemetry does not exist. Without Telemetries the result is nil. The Telemetries are shared and read-only.
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

// decision contains the inputs of Of, and its result so far.
type decision struct {
	*input.Input
	Proxy
	out Reports
}

// place identifies the field of a provider or of a setting, for problems.
type place struct {
	key   model.Key
	field string
}

// warn reports a warning for a field.
func (d *decision) warn(at place, code problem.Code, format string, args ...any) {
	d.out.Problems = append(d.out.Problems, input.Warning(at.key, code, at.field, fmt.Sprintf(format, args...)))
}

// notFound reports a missing object that a field refers to.
func (d *decision) notFound(at place, format string, args ...any) {
	d.out.Problems = append(d.out.Problems, input.NotFound(at.key, at.field, fmt.Sprintf(format, args...)))
}

// applies reports whether an entry of a Telemetry with this mode applies to the direction of the proxy.
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

// service returns the service that a provider's address refers to. name is the provider's name. If the service is
// unknown or ambiguous, or if the proxy has no cluster of the service, the result is false and a problem is reported.
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
		d.warn(at, problem.Invalid, "provider %s: several namespaces have host %q: write NAMESPACE/HOST; nothing is sent to it",
			name, of.Service)
	case !there:
		d.notFound(at, "provider %s: proxies of namespace %s have no cluster of a service with host %q and port %d: nothing is sent to it",
			name, d.Namespace, of.Service, of.Port)
	default:
		return build.Service{Host: host, Cluster: xds.OutboundCluster(of.Port, "", host)}, true
	}
	return build.Service{}, false
}

// namesOf returns the names of providers.
func namesOf(refs []*telemetryv1.ProviderRef) (names []string) {
	for _, ref := range refs {
		names = append(names, ref.GetName())
	}
	return names
}

// byName compares tags by name.
func byName(a, b build.Tag) int { return cmp.Compare(a.Name, b.Name) }
